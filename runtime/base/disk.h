// The system calls behind files whose order decides what a crash leaves: checkpoints, accounts,
// locks, records. They go through one interface, so that a simulation (tests/simulation) can stand
// in for the system: it crashes at any of them and keeps, drops or tears what was not synced.
// Everything else reads and writes as it likes.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace moonshard {

/// Each as the system call that it is named after: -1 and errno where it fails.
class Disk {
 public:
  virtual ~Disk() = default;

  virtual int open(const char* path, int flags, unsigned mode) = 0;
  virtual int close(int file) = 0;
  virtual ssize_t pread(int file, void* target, size_t bytes, off_t position) = 0;
  virtual ssize_t write(int file, const void* data, size_t bytes) = 0;
  virtual ssize_t pwrite(int file, const void* data, size_t bytes, off_t position) = 0;
  virtual int ftruncate(int file, off_t bytes) = 0;
  virtual int fsync(int file) = 0;
  virtual int fdatasync(int file) = 0;
  virtual int fstat(int file, struct stat& status) = 0;
  /// With LOCK_EX and LOCK_NB.
  virtual int flock(int file) = 0;

  virtual int stat(const char* path, struct stat& status) = 0;
  virtual int lstat(const char* path, struct stat& status) = 0;
  virtual int mkdir(const char* path, unsigned mode) = 0;
  virtual int unlink(const char* path) = 0;
  virtual int rmdir(const char* path) = 0;
  virtual int rename(const char* from, const char* to) = 0;
  /// renameat2 with RENAME_EXCHANGE.
  virtual int exchange(const char* one, const char* other) = 0;
  /// Names in a folder; none where it cannot be read.
  virtual std::vector<std::string> names_in(const std::filesystem::path& folder) = 0;
  /// Without links and dots; empty where there is nothing.
  virtual std::optional<std::filesystem::path> canonical(const std::filesystem::path& path) = 0;

  /// Whether this process has synced the folder into the one above it: who made it may have been
  /// killed before it did.
  virtual bool is_known_to_last(const std::string& folder) = 0;
  virtual void note_lasting(const std::string& folder) = 0;

  /// Of a clock that does not jump.
  virtual double seconds() = 0;
  /// Of the clock on the wall, by which files are dated and folders named.
  virtual int64_t time() = 0;

  /// Who writes: in the names of temporaries.
  virtual int64_t process() = 0;
  virtual bool is_alive(int64_t process) = 0;
  /// When it began, in seconds of the clock that files are dated by; 0 where that cannot be told.
  /// Numbers of processes are given again, after a minute on a busy machine.
  virtual double began(int64_t /*process*/) { return 0; }
};

/// The one that this thread works on: the system's, unless a DiskScope says otherwise.
Disk& disk();

/// While it lives, this thread works on another disk.
class DiskScope {
 public:
  explicit DiskScope(Disk& other);
  ~DiskScope();
  DiskScope(const DiskScope&) = delete;
  DiskScope& operator=(const DiskScope&) = delete;

 private:
  Disk* before_;
};

/// False, too, where that cannot be told. Links are followed.
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
/// Removes a folder with all in it, or a file; links are not followed. What cannot be removed
/// stays.
void remove_tree(const std::filesystem::path& path);

}  // namespace moonshard
