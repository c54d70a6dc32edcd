#include "runtime/launch/file_lock.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>

#include "runtime/base/check.h"
#include "runtime/base/disk.h"

namespace moonshard::launch {
namespace {

std::string read_text(int file) {
  char text[512];
  const ssize_t count = disk().pread(file, text, sizeof text, 0);
  return count > 0 ? std::string(text, static_cast<size_t>(count)) : "";
}

// The previous holder may have removed the file between our open and our lock: then we hold a lock
// on a deleted file, which excludes no other process.
bool is_still_there(int file, const std::filesystem::path& path) {
  struct stat ours {
  }, there{};
  return disk().fstat(file, ours) == 0 && disk().stat(path.c_str(), there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}

}  // namespace

struct FileLock::Held {
  Held(int open_file, std::filesystem::path at) : file(open_file), path(std::move(at)) {}
  ~Held() {
    disk().unlink(path.c_str());  // while locked: no other process can hold it
    disk().close(file);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  int file;
  std::filesystem::path path;
};

std::optional<FileLock> FileLock::try_take(const std::filesystem::path& path,
                                           const std::string& own_text, std::string& holder) {
  while (true) {
    const int file = disk().open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file < 0) {
      throw IoError(fmt::format("{}: cannot make the lock file: {}; check the folder",
                                path.string(), std::strerror(errno)));
    }
    if (disk().flock(file) != 0) {
      const int error = errno;
      holder = read_text(file);
      disk().close(file);
      if (error == EWOULDBLOCK) return std::nullopt;
      if (error == EINTR) continue;
      throw IoError(fmt::format("{}: cannot lock: {}; that file system may have no locks",
                                path.string(), std::strerror(error)));
    }
    if (!is_still_there(file, path)) {
      disk().close(file);
      continue;
    }
    auto held = std::make_shared<Held>(file, path);
    if (disk().ftruncate(file, 0) != 0 ||
        disk().pwrite(file, own_text.data(), own_text.size(), 0) !=
            static_cast<ssize_t>(own_text.size())) {
      throw IoError(
          fmt::format("{}: cannot write the lock file: {}", path.string(), std::strerror(errno)));
    }
    return FileLock(std::move(held));
  }
}

}  // namespace moonshard::launch
