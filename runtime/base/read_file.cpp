#include "runtime/base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"

namespace moonshard {
namespace {

constexpr size_t kMaxPathBytes = 4096;
// Between two system calls an interrupt is looked for.
constexpr int64_t kMaxReadBytes = 64 << 20;

}  // namespace

void fail_to_read(const std::filesystem::path& path, const char* action, int error) {
  const char* advice = error == EACCES   ? "check the rights on it"
                       : error == EMFILE ? "raise 'ulimit -n'"
                                         : "check the path and the disk";
  throw IoError(
      fmt::format("{}: cannot {}: {}; {}", path.string(), action, std::strerror(error), advice));
}

void check_path_length(const std::filesystem::path& path) {
  MS_CHECK(path.native().size() <= kMaxPathBytes,
           "file: expected a path of at most {} bytes, got {}; shorten it", kMaxPathBytes,
           path.native().size());
}

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
  check_path_length(path);
  ReadOnlyFile result;
  result.path_ = path;
  // Without O_NONBLOCK the opening of a pipe would wait for its writer.
  result.file_ = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (result.file_.number() < 0) fail_to_read(path, "read", errno);
  struct stat status {};
  if (::fstat(result.file_.number(), &status) != 0) fail_to_read(path, "read", errno);
  if (!S_ISREG(status.st_mode)) {
    throw IoError(fmt::format("{}: expected a file, got {}; name a file", path.string(),
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
                                static_cast<size_t>(std::min(bytes - done, kMaxReadBytes)),
                                static_cast<off_t>(position + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to_read(path_, "read", errno);
    if (got == 0) {
      throw IoError(fmt::format(
          "{}: {}: expected {} bytes at position {}, got {}; the file was cut after it was "
          "opened: open it again when its writer is done",
          path_.string(), what, bytes, position, done));
    }
    done += got;
  }
}

}  // namespace moonshard
