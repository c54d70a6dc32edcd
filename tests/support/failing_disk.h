// The system's disk, of which one call fails, or which is slow to take what it is given.
#pragma once

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/disk.h"

namespace moonshard {

class FailingDisk : public Disk {
 public:
  // Calls are counted from 1. Those of names_in and canonical, and the clocks, cannot fail.
  int64_t calls = 0;
  int64_t fails_at = 0;  ///< none
  int error = ENOSPC;
  size_t most_bytes = SIZE_MAX;  ///< that a write or read takes at a time
  bool close_fails = false;
  bool interrupts = false;  ///< every second write or read
  double tick = 0;          ///< seconds that pass whenever the clock is read; 0: the system's

  int open(const char* path, int flags, unsigned mode) override {
    return fails() ? -1 : system_.open(path, flags, mode);
  }
  int close(int file) override {
    const int result = system_.close(file);
    if (!close_fails) return result;
    errno = error;
    return -1;
  }
  ssize_t pread(int file, void* target, size_t bytes, off_t position) override {
    return fails() || is_interrupted() ? -1 : system_.pread(file, target, part(bytes), position);
  }
  ssize_t write(int file, const void* data, size_t bytes) override {
    return fails() || is_interrupted() ? -1 : system_.write(file, data, part(bytes));
  }
  ssize_t pwrite(int file, const void* data, size_t bytes, off_t position) override {
    return fails() || is_interrupted() ? -1 : system_.pwrite(file, data, part(bytes), position);
  }
  int ftruncate(int file, off_t bytes) override {
    return fails() ? -1 : system_.ftruncate(file, bytes);
  }
  // Nobody pulls the plug, so that nothing need be synced.
  int fsync(int) override { return fails() ? -1 : 0; }
  int fdatasync(int) override { return fails() ? -1 : 0; }
  int fstat(int file, struct stat& status) override {
    return fails() ? -1 : system_.fstat(file, status);
  }
  int flock(int file) override { return fails() ? -1 : system_.flock(file); }
  int stat(const char* path, struct stat& status) override { return system_.stat(path, status); }
  int lstat(const char* path, struct stat& status) override { return system_.lstat(path, status); }
  int mkdir(const char* path, unsigned mode) override {
    return fails() ? -1 : system_.mkdir(path, mode);
  }
  int unlink(const char* path) override { return fails() ? -1 : system_.unlink(path); }
  int rmdir(const char* path) override { return fails() ? -1 : system_.rmdir(path); }
  int rename(const char* from, const char* to) override {
    return fails() ? -1 : system_.rename(from, to);
  }
  int exchange(const char* one, const char* other) override {
    return fails() ? -1 : system_.exchange(one, other);
  }
  std::vector<std::string> names_in(const std::filesystem::path& folder) override {
    return system_.names_in(folder);
  }
  std::optional<std::filesystem::path> canonical(const std::filesystem::path& path) override {
    return system_.canonical(path);
  }
  bool is_known_to_last(const std::string&) override { return false; }
  void note_lasting(const std::string&) override {}
  double seconds() override { return tick == 0 ? system_.seconds() : (now_ += tick); }
  int64_t time() override { return system_.time(); }
  int64_t process() override { return system_.process(); }
  bool is_alive(int64_t process) override { return system_.is_alive(process); }
  double began(int64_t process) override { return system_.began(process); }

 private:
  bool fails() {
    if (++calls != fails_at) return false;
    errno = error;
    return true;
  }
  bool is_interrupted() {
    if (!interrupts || ++transfers_ % 2 == 1) return false;
    errno = EINTR;
    return true;
  }
  size_t part(size_t bytes) const { return std::min(bytes, most_bytes); }

  Disk& system_ = disk();
  int64_t transfers_ = 0;
  double now_ = system_.seconds();
};

}  // namespace moonshard
