// A disk of one file whose bytes the caller has: a reader that goes through runtime/base/disk.h
// opens, reads and closes it without a system call. Whatever else is asked of it ends the program.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "runtime/base/disk.h"

namespace moonshard::viewer {

class MemoryDisk final : public Disk {
 public:
  /// The bytes must stay while the disk is used.
  void set(const char* path, std::string_view bytes) {
    path_ = path;
    bytes_ = bytes;
  }

  int open(const char* path, int, unsigned) override { return found(path) ? kFile : -1; }
  int close(int file) override { return file == kFile ? 0 : -1; }
  ssize_t pread(int, void* target, size_t bytes, off_t position) override {
    if (static_cast<size_t>(position) >= bytes_.size()) return 0;
    return static_cast<ssize_t>(
        bytes_.copy(static_cast<char*>(target), bytes, static_cast<size_t>(position)));
  }
  int fstat(int, struct stat& status) override {
    status.st_mode = S_IFREG | 0600;
    status.st_size = static_cast<off_t>(bytes_.size());
    return 0;
  }
  int stat(const char* path, struct stat& status) override {
    return found(path) ? fstat(kFile, status) : -1;
  }
  int lstat(const char* path, struct stat& status) override { return stat(path, status); }

  // Nothing that only reads asks for these.
  ssize_t write(int, const void*, size_t) override { std::abort(); }
  ssize_t pwrite(int, const void*, size_t, off_t) override { std::abort(); }
  int ftruncate(int, off_t) override { std::abort(); }
  int fsync(int) override { std::abort(); }
  int fdatasync(int) override { std::abort(); }
  int flock(int) override { std::abort(); }
  int mkdir(const char*, unsigned) override { std::abort(); }
  int unlink(const char*) override { std::abort(); }
  int rmdir(const char*) override { std::abort(); }
  int rename(const char*, const char*) override { std::abort(); }
  int exchange(const char*, const char*) override { std::abort(); }
  std::vector<std::string> names_in(const std::filesystem::path&) override { std::abort(); }
  std::optional<std::filesystem::path> canonical(const std::filesystem::path&) override {
    std::abort();
  }
  bool is_known_to_last(const std::string&) override { std::abort(); }
  void note_lasting(const std::string&) override { std::abort(); }
  double seconds() override { std::abort(); }
  int64_t time() override { std::abort(); }
  int64_t process() override { std::abort(); }
  bool is_alive(int64_t) override { std::abort(); }

 private:
  static constexpr int kFile = 1 << 20;  // no descriptor of the system's

  bool found(const char* path) const {
    if (std::strcmp(path, path_) == 0) return true;
    errno = ENOENT;
    return false;
  }

  const char* path_ = "";
  std::string_view bytes_;
};

}  // namespace moonshard::viewer
