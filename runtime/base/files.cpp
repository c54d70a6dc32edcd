#include "runtime/base/files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/reclaim.h"

namespace moonshard {
namespace {

constexpr size_t kMaxPathBytes = 4096;
// Between two system calls an interrupt is looked for.
constexpr int64_t kMaxReadBytes = 64 << 20;

constexpr std::string_view kTemporaryMark = ".moonshard-tmp.";
// Between two system calls an interrupt is looked for.
constexpr int64_t kMaxWriteBytes = 64 << 20;

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
  result.file_ = Descriptor(open_or_reclaim(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
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

void fail_to_write(const std::filesystem::path& path, const char* action, int error) {
  const char* advice = error == ENOSPC || error == EDQUOT  ? "free space on that disk"
                       : error == EROFS || error == EACCES ? "choose a folder you may write to"
                       : error == EMFILE                   ? "raise 'ulimit -n'"
                       : error == ELOOP ? "it is a link, which is not followed: remove it"
                                        : "check the folder";
  throw IoError(
      fmt::format("{}: cannot {}: {}; {}", path.string(), action, std::strerror(error), advice));
}

void create_folders(const std::filesystem::path& folder, Access access) {
  std::error_code ignored;
  if (folder.empty() || std::filesystem::is_directory(folder, ignored)) return;
  const std::filesystem::path above = folder.parent_path();
  if (above != folder) create_folders(above, access);
  if (::mkdir(folder.c_str(), access == Access::Private ? 0700 : 0777) == 0) {
    sync_folder(above);
    return;
  }
  const int reason = errno;  // another process may have been faster
  if (!std::filesystem::is_directory(folder, ignored))
    fail_to_write(folder, "make the folder", reason);
}

void create_private_folders(const std::filesystem::path& folder) {
  create_folders(folder, Access::Private);
}

std::filesystem::path user_folder() {
  const char* given = std::getenv("MOONSHARD_LOCK_DIR");
  const std::string folder =
      given != nullptr && *given != '\0' ? given : fmt::format("/tmp/moonshard-{}", ::getuid());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw IoError(
        fmt::format("{}: cannot make the folder for locks and sockets: {}; set MOONSHARD_LOCK_DIR",
                    folder, std::strerror(errno)));
  }
  // /tmp is shared: another user may have created the folder first, or a symlink in its place.
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::getuid() ||
      (given == nullptr && (info.st_mode & 077) != 0)) {
    throw IoError(
        fmt::format("{}: expected a folder of this user alone for locks and sockets, got another's "
                    "or one that others may enter; set MOONSHARD_LOCK_DIR",
                    folder));
  }
  return folder;
}

StagedFile::StagedFile(const std::filesystem::path& target, OnInterrupt on_interrupt, Access access)
    : target_(target), on_interrupt_(on_interrupt) {
  static std::atomic<unsigned> counter{0};
  check_path_length(target);
  aside_ = target;
  // The process id in the name lets a later run tell a dead writer's leftovers from a live one's.
  aside_ += fmt::format("{}{}.{}", kTemporaryMark, ::getpid(), counter.fetch_add(1));
  file_ = Descriptor(
      open_or_reclaim(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, file_mode(access)));
  if (file_.number() < 0) {
    const int error = errno;
    aside_.clear();
    fail_to_write(target, "create", error);
  }
}

StagedFile::StagedFile(StagedFile&& other) noexcept
    : target_(std::move(other.target_)),
      aside_(std::exchange(other.aside_, {})),
      file_(std::move(other.file_)),
      on_interrupt_(other.on_interrupt_) {}

StagedFile::~StagedFile() {
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

void StagedFile::write(const void* data, int64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    if (on_interrupt_ == OnInterrupt::Stop) throw_if_interrupted();
    const ssize_t written =
        ::write(file_.number(), from, static_cast<size_t>(std::min(bytes, kMaxWriteBytes)));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to_write(target_, "write", errno);
    from += written;
    bytes -= written;
  }
}

void StagedFile::write_at(int64_t position, const void* data, int64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(
        file_.number(), from, static_cast<size_t>(std::min(bytes, kMaxWriteBytes)), position);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to_write(target_, "write", errno);
    from += written;
    position += written;
    bytes -= written;
  }
}

void StagedFile::finish() {
  if (::fsync(file_.number()) != 0) fail_to_write(target_, "sync", errno);
  if (!file_.close()) fail_to_write(target_, "write", errno);
}

void StagedFile::commit() {
  if (::rename(aside_.c_str(), target_.c_str()) != 0) fail_to_write(target_, "replace", errno);
  aside_.clear();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes,
                           Access access) {
  std::error_code unknown;
  const std::filesystem::file_status there = std::filesystem::status(path, unknown);
  // The rename would put a plain file in the place of a device or a pipe.
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    throw IoError(
        fmt::format("{}: expected the name of a file, got {}; choose another name", path.string(),
                    std::filesystem::is_directory(there) ? "a folder" : "a device or a pipe"));
  }
  StagedFile file(path, StagedFile::OnInterrupt::GoOn, access);
  file.write(bytes.data(), static_cast<int64_t>(bytes.size()));
  file.finish();
  file.commit();
  sync_folder(path.parent_path());
}

void append_to_file(const std::filesystem::path& path, std::string_view bytes, Access access) {
  // A folder from elsewhere may hold a link to anything; O_NONBLOCK refuses a pipe without a
  // reader.
  const Descriptor file(::open(path.c_str(),
                               O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                               file_mode(access)));
  if (file.number() < 0) fail_to_write(path, "open", errno);
  const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
  if (written < 0) fail_to_write(path, "add to", errno);
  if (written != static_cast<ssize_t>(bytes.size())) fail_to_write(path, "add to", ENOSPC);
}

void append_private(const std::filesystem::path& path, std::string_view bytes) {
  append_to_file(path, bytes, Access::Private);
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor file(
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.number() < 0) fail_to_write(folder, "open folder", errno);
  // Some file systems cannot sync a folder and say so with EINVAL: the rename is all they offer.
  if (::fsync(file.number()) != 0 && errno != EINVAL) fail_to_write(folder, "sync folder", errno);
}

bool is_temporary_name(std::string_view file_name) {
  return file_name.find(kTemporaryMark) != std::string_view::npos;
}

int sweep_stale_temporaries(const std::filesystem::path& folder) {
  int removed = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const size_t mark = name.find(kTemporaryMark);
    if (mark == std::string::npos) continue;
    const long writer = std::strtol(name.c_str() + mark + kTemporaryMark.size(), nullptr, 10);
    const bool alive = writer > 0 && (::kill(static_cast<pid_t>(writer), 0) == 0 || errno == EPERM);
    if (!alive && std::filesystem::remove(entry.path(), error)) ++removed;
  }
  return removed;
}

}  // namespace moonshard
