#include "runtime/base/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/base/check.h"

namespace moonshard {
namespace {

constexpr std::string_view kTemporaryMark = ".moonshard-tmp.";

[[noreturn]] void fail(const std::filesystem::path& path, const char* action, int error) {
  const char* advice = error == ENOSPC || error == EDQUOT  ? "free space on that disk"
                       : error == EROFS || error == EACCES ? "choose a folder you may write to"
                                                           : "check the folder";
  throw IoError(
      fmt::format("{}: cannot {}: {}; {}", path.string(), action, std::strerror(error), advice));
}

void write_all(int file, std::string_view bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path, "write", errno);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void sync_folder(const std::filesystem::path& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail(folder, "open folder", errno);
  const int result = ::fsync(file);
  const int error = errno;
  ::close(file);
  // Some file systems cannot sync a folder and say so with EINVAL: the rename is all they offer.
  if (result != 0 && error != EINVAL) fail(folder, "sync folder", error);
}

}  // namespace

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  std::error_code unknown;
  const std::filesystem::file_status there = std::filesystem::status(path, unknown);
  // The rename below would put a plain file in the place of a device or a pipe.
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    throw IoError(
        fmt::format("{}: expected the name of a file, got {}; choose another name", path.string(),
                    std::filesystem::is_directory(there) ? "a folder" : "a device or a pipe"));
  }
  static std::atomic<unsigned> counter{0};
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  // The process id in the name lets a later run tell a dead writer's leftovers from a live one's.
  const std::filesystem::path aside =
      folder / fmt::format("{}{}{}.{}", path.filename().string(), kTemporaryMark, ::getpid(),
                           counter.fetch_add(1));
  const int file = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) fail(path, "create", errno);
  try {
    write_all(file, bytes, path);
    if (::fsync(file) != 0) fail(path, "sync", errno);
  } catch (...) {
    ::close(file);
    ::unlink(aside.c_str());
    throw;
  }
  if (::close(file) != 0 || ::rename(aside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(aside.c_str());
    fail(path, "replace", error);
  }
  sync_folder(folder);
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
