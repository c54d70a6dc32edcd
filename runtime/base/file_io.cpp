#include "runtime/base/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"

namespace moonshard {
namespace {

constexpr size_t kMaxPathBytes = 4096;
// Between two calls the user's wish to stop is looked at.
constexpr int64_t kMaxCallBytes = 64 << 20;

[[noreturn]] void fail(const std::filesystem::path& path, const char* action, int error) {
  const char* advice = error == ENOSPC || error == EDQUOT  ? "free space on that disk"
                       : error == EROFS || error == EACCES ? "check the rights on it"
                       : error == EMFILE                   ? "raise 'ulimit -n'"
                                                           : "check the path and the disk";
  throw IoError(
      fmt::format("{}: cannot {}: {}; {}", path.string(), action, std::strerror(error), advice));
}

void check_length(const std::filesystem::path& path) {
  MS_CHECK(path.native().size() <= kMaxPathBytes,
           "weights: expected a path of at most {} bytes, got {}; shorten it", kMaxPathBytes,
           path.native().size());
}

}  // namespace

// ---- Descriptor -------------------------------------------------------------------------------

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    number_ = other.release();
  }
  return *this;
}

int Descriptor::release() {
  return std::exchange(number_, -1);
}

bool Descriptor::close() {
  const int number = release();
  return number < 0 || ::close(number) == 0;
}

// ---- reading ----------------------------------------------------------------------------------

ReadOnlyFile ReadOnlyFile::open(const std::filesystem::path& path) {
  check_length(path);
  ReadOnlyFile result;
  result.path_ = path;
  // Without O_NONBLOCK the opening of a pipe would wait for its writer.
  result.file_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (result.file_.number() < 0) fail(path, "read", errno);
  struct stat status {};
  if (::fstat(result.file_.number(), &status) != 0) fail(path, "read", errno);
  if (!S_ISREG(status.st_mode)) {
    throw IoError(fmt::format("{}: expected a file, got {}; name a .safetensors file",
                              path.string(),
                              S_ISDIR(status.st_mode) ? "a folder" : "a pipe or device"));
  }
  result.size_ = status.st_size;
  return result;
}

void ReadOnlyFile::read_at(int64_t position, void* target, int64_t bytes,
                           const std::string& what) const {
  auto* to = static_cast<char*>(target);
  int64_t done = 0;
  while (done < bytes) {
    throw_if_interrupted();
    const ssize_t got = ::pread(file_.number(), to + done,
                                static_cast<size_t>(std::min(bytes - done, kMaxCallBytes)),
                                static_cast<off_t>(position + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "read", errno);
    if (got == 0) {
      throw IoError(fmt::format(
          "{}: {}: expected {} bytes at position {}, got {}; the file was cut after it was "
          "opened: open it again when its writer is done",
          path_.string(), what, bytes, position, done));
    }
    done += got;
  }
}

// ---- writing ----------------------------------------------------------------------------------

StagedFile::StagedFile(const std::filesystem::path& target) : target_(target) {
  static std::atomic<unsigned> counter{0};
  check_length(target);
  aside_ = target;
  // The name records/atomic_file uses: the process id tells a dead writer's leftovers.
  aside_ += fmt::format(".moonshard-tmp.{}.w{}", ::getpid(), counter.fetch_add(1));
  file_ = Descriptor(::open(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file_.number() < 0) {
    aside_.clear();
    fail(target, "create", errno);
  }
}

StagedFile::StagedFile(StagedFile&& other) noexcept
    : target_(std::move(other.target_)),
      aside_(std::exchange(other.aside_, {})),
      file_(std::move(other.file_)) {}

StagedFile::~StagedFile() {
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

void StagedFile::write(const void* data, int64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    throw_if_interrupted();
    const ssize_t written =
        ::write(file_.number(), from, static_cast<size_t>(std::min(bytes, kMaxCallBytes)));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(target_, "write", errno);
    from += written;
    bytes -= written;
  }
}

void StagedFile::finish() {
  if (::fsync(file_.number()) != 0) fail(target_, "sync", errno);
  if (!file_.close()) fail(target_, "write", errno);
}

void StagedFile::commit() {
  if (::rename(aside_.c_str(), target_.c_str()) != 0) fail(target_, "replace", errno);
  aside_.clear();
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor file(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.number() < 0) fail(folder, "open folder", errno);
  // Some file systems cannot sync a folder and say so with EINVAL: the rename is all they offer.
  if (::fsync(file.number()) != 0 && errno != EINVAL) fail(folder, "sync folder", errno);
}

}  // namespace moonshard
