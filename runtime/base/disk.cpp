#include "runtime/base/disk.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <sstream>
#include <system_error>

namespace moonshard {
namespace {

class SystemDisk final : public Disk {
 public:
  int open(const char* path, int flags, unsigned mode) override {
    return ::open(path, flags, mode);
  }
  int close(int file) override { return ::close(file); }
  ssize_t pread(int file, void* target, size_t bytes, off_t position) override {
    return ::pread(file, target, bytes, position);
  }
  ssize_t write(int file, const void* data, size_t bytes) override {
    return ::write(file, data, bytes);
  }
  ssize_t pwrite(int file, const void* data, size_t bytes, off_t position) override {
    return ::pwrite(file, data, bytes, position);
  }
  int ftruncate(int file, off_t bytes) override { return ::ftruncate(file, bytes); }
  int fsync(int file) override { return ::fsync(file); }
  int fdatasync(int file) override { return ::fdatasync(file); }
  int fstat(int file, struct stat& status) override { return ::fstat(file, &status); }
  int flock(int file) override { return ::flock(file, LOCK_EX | LOCK_NB); }

  int stat(const char* path, struct stat& status) override { return ::stat(path, &status); }
  int lstat(const char* path, struct stat& status) override { return ::lstat(path, &status); }
  int mkdir(const char* path, unsigned mode) override { return ::mkdir(path, mode); }
  int unlink(const char* path) override { return ::unlink(path); }
  int rmdir(const char* path) override { return ::rmdir(path); }
  int rename(const char* from, const char* to) override { return ::rename(from, to); }
  int exchange(const char* one, const char* other) override {
    return ::renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE);
  }
  std::vector<std::string> names_in(const std::filesystem::path& folder) override {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
      names.push_back(entry.path().filename().string());
    return names;
  }
  std::optional<std::filesystem::path> canonical(const std::filesystem::path& path) override {
    std::error_code error;
    std::filesystem::path found = std::filesystem::canonical(path, error);
    return error ? std::nullopt : std::optional(std::move(found));
  }

  bool is_known_to_last(const std::string& folder) override {
    const std::lock_guard lock(mutex_);
    return lasting_.contains(folder);
  }
  void note_lasting(const std::string& folder) override {
    constexpr size_t kMost = 1024;  // a sweep has very many points
    const std::lock_guard lock(mutex_);
    if (lasting_.size() >= kMost) lasting_.clear();
    lasting_.insert(folder);
  }

  double seconds() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  int64_t time() override { return std::time(nullptr); }

  int64_t process() override { return ::getpid(); }
  // One that has ended is still there until its parent has asked how.
  bool is_alive(int64_t process) override {
    if (process <= 0 || (::kill(static_cast<pid_t>(process), 0) != 0 && errno != EPERM))
      return false;
    std::string state;
    return !(status_fields(process) >> state) || (state != "Z" && state != "X");
  }
  double began(int64_t process) override {
    std::istringstream fields = status_fields(process);
    std::string skipped;
    for (int i = 3; i < 22; ++i) fields >> skipped;
    double ticks = 0;
    if (!(fields >> ticks)) return 0;
    struct timespec now {
    }, since_boot{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    ::clock_gettime(CLOCK_BOOTTIME, &since_boot);
    const double boot = static_cast<double>(now.tv_sec - since_boot.tv_sec) +
                        1e-9 * static_cast<double>(now.tv_nsec - since_boot.tv_nsec);
    return boot + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

 private:
  // Behind the name, which may have anything in it: state is field 3, the start field 22.
  static std::istringstream status_fields(int64_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const size_t name_end = text.rfind(')');
    return std::istringstream(name_end == std::string::npos ? "" : text.substr(name_end + 1));
  }

  std::mutex mutex_;
  std::set<std::string> lasting_;
};

thread_local Disk* disk_of_thread = nullptr;

}  // namespace

Disk& disk() {
  static SystemDisk system;
  return disk_of_thread != nullptr ? *disk_of_thread : system;
}

DiskScope::DiskScope(Disk& other) : before_(disk_of_thread) {
  disk_of_thread = &other;
}

DiskScope::~DiskScope() {
  disk_of_thread = before_;
}

bool is_there(const std::filesystem::path& path) {
  struct stat status {};
  return disk().stat(path.c_str(), status) == 0;
}

bool is_folder(const std::filesystem::path& path) {
  struct stat status {};
  return disk().stat(path.c_str(), status) == 0 && S_ISDIR(status.st_mode);
}

void remove_tree(const std::filesystem::path& path) {
  struct stat status {};
  if (disk().lstat(path.c_str(), status) != 0) return;
  if (!S_ISDIR(status.st_mode)) {
    disk().unlink(path.c_str());
    return;
  }
  for (const std::string& name : disk().names_in(path)) remove_tree(path / name);
  disk().rmdir(path.c_str());
}

}  // namespace moonshard
