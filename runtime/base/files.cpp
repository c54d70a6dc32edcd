#include "runtime/base/files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/disk.h"
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
  return number < 0 || disk().close(number) == 0;
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
  if (disk().fstat(result.file_.number(), status) != 0) fail_to_read(path, "read", errno);
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
    const ssize_t got = disk().pread(file_.number(), to + done,
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

// A folder that is there may be one whose maker was killed before it was synced into the one above
// it: a power cut would take it with all that was synced in it.
static void make_last(const std::filesystem::path& folder) {
  if (folder.empty() || disk().is_known_to_last(folder.string())) return;
  const std::filesystem::path above = folder.parent_path();
  if (above == folder) return;
  make_last(above);
  const Descriptor file(
      disk().open(above.empty() ? "." : above.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
  // One above that may not be read is not of our making.
  if (file.number() >= 0 && disk().fsync(file.number()) != 0 && errno != EINVAL && errno != EROFS)
    fail_to_write(above, "sync folder", errno);
  disk().note_lasting(folder.string());
}

void create_folders(const std::filesystem::path& folder, Access access) {
  if (folder.empty()) return;
  if (is_folder(folder)) {
    make_last(folder);
    return;
  }
  const std::filesystem::path above = folder.parent_path();
  if (above != folder) create_folders(above, access);
  if (disk().mkdir(folder.c_str(), access == Access::Private ? 0700 : 0777) == 0) {
    sync_folder(above);
    disk().note_lasting(folder.string());
    return;
  }
  const int reason = errno;  // another process may have been faster
  if (!is_folder(folder)) fail_to_write(folder, "make the folder", reason);
  make_last(folder);
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
  aside_ += fmt::format("{}{}.{}", kTemporaryMark, disk().process(), counter.fetch_add(1));
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
  if (!aside_.empty()) disk().unlink(aside_.c_str());
}

void StagedFile::write(const void* data, int64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    if (on_interrupt_ == OnInterrupt::Stop) throw_if_interrupted();
    const ssize_t written =
        disk().write(file_.number(), from, static_cast<size_t>(std::min(bytes, kMaxWriteBytes)));
    if (written < 0 && errno == EINTR) continue;
    // None written and no error is a disk that takes nothing more.
    if (written <= 0) fail_to_write(target_, "write", written < 0 ? errno : ENOSPC);
    from += written;
    bytes -= written;
  }
}

void StagedFile::write_at(int64_t position, const void* data, int64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = disk().pwrite(
        file_.number(), from, static_cast<size_t>(std::min(bytes, kMaxWriteBytes)), position);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail_to_write(target_, "write", written < 0 ? errno : ENOSPC);
    from += written;
    position += written;
    bytes -= written;
  }
}

void StagedFile::finish() {
  if (disk().fsync(file_.number()) != 0) fail_to_write(target_, "sync", errno);
  if (!file_.close()) fail_to_write(target_, "write", errno);
}

void StagedFile::commit() {
  if (disk().rename(aside_.c_str(), target_.c_str()) != 0) fail_to_write(target_, "replace", errno);
  aside_.clear();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes,
                           Access access) {
  struct stat there {};
  // The rename would put a plain file in the place of a device or a pipe.
  if (disk().stat(path.c_str(), there) == 0 && !S_ISREG(there.st_mode)) {
    throw IoError(fmt::format("{}: expected the name of a file, got {}; choose another name",
                              path.string(),
                              S_ISDIR(there.st_mode) ? "a folder" : "a device or a pipe"));
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
  const Descriptor file(
      disk().open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                  file_mode(access)));
  if (file.number() < 0) fail_to_write(path, "open", errno);
  const ssize_t written = disk().write(file.number(), bytes.data(), bytes.size());
  if (written < 0) fail_to_write(path, "add to", errno);
  if (written != static_cast<ssize_t>(bytes.size())) fail_to_write(path, "add to", ENOSPC);
}

void append_private(const std::filesystem::path& path, std::string_view bytes) {
  append_to_file(path, bytes, Access::Private);
}

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor file(
      disk().open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
  if (file.number() < 0) fail_to_write(folder, "open folder", errno);
  // Some file systems cannot sync a folder and say so with EINVAL: the rename is all they offer.
  if (disk().fsync(file.number()) != 0 && errno != EINVAL)
    fail_to_write(folder, "sync folder", errno);
}

bool is_temporary_name(std::string_view file_name) {
  return file_name.find(kTemporaryMark) != std::string_view::npos;
}

// Whether the process of that number is the one that made the file, not one of the same number
// that began later.
static bool may_be_written(const std::filesystem::path& path, int64_t writer) {
  if (!disk().is_alive(writer)) return false;
  struct stat status {};
  constexpr double kSlack = 10;  // clocks are read apart, and may have been set
  return disk().lstat(path.c_str(), status) != 0 ||
         disk().began(writer) <= static_cast<double>(status.st_mtime) + kSlack;
}

int sweep_stale_temporaries(const std::filesystem::path& folder) {
  int removed = 0;
  for (const std::string& name : disk().names_in(folder)) {
    const size_t mark = name.find(kTemporaryMark);
    if (mark == std::string::npos) continue;
    const long writer = std::strtol(name.c_str() + mark + kTemporaryMark.size(), nullptr, 10);
    const std::filesystem::path path = folder / name;
    if (!may_be_written(path, writer) && disk().unlink(path.c_str()) == 0) ++removed;
  }
  return removed;
}

}  // namespace moonshard
