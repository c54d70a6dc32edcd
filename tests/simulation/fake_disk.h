// A disk that forgets. What a process writes is seen by all at once; what a power cut leaves is
// what was synced, and of the rest each write and each change of a folder is kept, dropped or (a
// write) torn, as the seed decides. A rename is atomic; whether a later change lasts says nothing
// about an earlier one. A kill takes a process in the middle of any call and nothing from the disk.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/disk.h"
#include "tests/simulation/scheduler.h"

namespace moonshard::simulation {

class FakeDisk : public Disk {
 public:
  explicit FakeDisk(Scheduler& scheduler);

  // ---- faults
  /// The process that makes the call of this number from now on dies in it; with power, all do.
  void crash_at(int64_t calls, bool with_power) {
    calls_to_crash_ = calls;
    crash_takes_power_ = with_power;
  }
  /// What to do to all processes at a power cut, after which the disk has forgotten.
  std::function<void()> on_power_cut;
  std::function<void(int64_t process)> on_kill;
  double error_rate = 0;  ///< of writes and syncs
  double clock_jump = 0;  ///< added to times of files
  void cut_power();
  /// Its files are closed, its locks are free.
  void forget_process(int64_t process);
  int64_t calls() const { return calls_; }

  // ---- deliberate defects
  bool ignores_data_sync = false;    ///< fdatasync does nothing
  bool ignores_folder_sync = false;  ///< fsync of a folder does nothing
  bool ignores_file_sync = false;    ///< fsync of a file does nothing
  bool forgets_locks = false;        ///< a lock is free again after the next call

  // ---- Disk
  int open(const char* path, int flags, unsigned mode) override;
  int close(int file) override;
  ssize_t pread(int file, void* target, size_t bytes, off_t position) override;
  ssize_t write(int file, const void* data, size_t bytes) override;
  ssize_t pwrite(int file, const void* data, size_t bytes, off_t position) override;
  int ftruncate(int file, off_t bytes) override;
  int fsync(int file) override;
  int fdatasync(int file) override;
  int fstat(int file, struct stat& status) override;
  int flock(int file) override;
  int stat(const char* path, struct stat& status) override;
  int lstat(const char* path, struct stat& status) override;
  int mkdir(const char* path, unsigned mode) override;
  int unlink(const char* path) override;
  int rmdir(const char* path) override;
  int rename(const char* from, const char* to) override;
  int exchange(const char* one, const char* other) override;
  std::vector<std::string> names_in(const std::filesystem::path& folder) override;
  std::optional<std::filesystem::path> canonical(const std::filesystem::path& path) override;
  bool is_known_to_last(const std::string& folder) override {
    return lasting_.contains({process(), folder});
  }
  void note_lasting(const std::string& folder) override { lasting_.insert({process(), folder}); }
  double seconds() override { return scheduler_.now(); }
  int64_t time() override { return static_cast<int64_t>(scheduler_.now() + clock_jump + 1e6); }
  int64_t process() override;
  bool is_alive(int64_t process) override;

 private:
  // Bytes by pages, as files may have holes of a mebibyte.
  struct Content {
    int64_t size = 0;
    std::map<int64_t, std::string> pages;
    void write(int64_t position, const char* data, int64_t bytes);
    void read(int64_t position, char* target, int64_t bytes) const;
  };
  struct Write {
    int64_t position;
    std::string data;
    bool truncates = false;
  };
  struct Node;
  using NodePointer = std::shared_ptr<Node>;
  /// In the order in which they were made; null: no such name.
  using Entries = std::vector<std::pair<std::string, NodePointer>>;
  using Change = std::vector<std::pair<std::string, NodePointer>>;
  struct Node {
    bool is_folder = false;
    uint64_t number = 0;
    double changed_at = 0;
    Content content, kept;       ///< kept: on the disk whatever happens
    std::vector<Write> pending;  ///< since the last sync
    Entries entries, kept_entries;
    std::vector<Change> changes;
    int lock = -1;  ///< the open file that holds it
  };
  struct OpenFile {
    NodePointer node;
    int64_t process = 0, position = 0;
    bool appends = false, writes = false;
    std::string path;
  };

  /// Every call begins here: false when the process dies in it.
  bool begin(const char* call, const std::string& what, bool may_fail);
  NodePointer make_node(bool is_folder);
  NodePointer find(const std::string& path) const;
  /// The folder that a path lies in and its last name; null where there is none.
  NodePointer parent_of(const std::string& path, std::string& name) const;
  static NodePointer entry(const Entries& entries, const std::string& name);
  static void apply(Entries& entries, const Change& change);
  void change(const NodePointer& folder, Change change);
  void add_write(OpenFile& file, int64_t position, const char* data, size_t bytes);
  void tear(Content& content, const Write& write);
  OpenFile* opened(int file);
  void fill(const NodePointer& node, struct stat& status) const;
  int fail(int error) const;

  Scheduler& scheduler_;
  NodePointer root_;
  std::vector<std::weak_ptr<Node>> nodes_;
  std::map<int, OpenFile> files_;
  std::set<std::pair<int64_t, std::string>> lasting_;
  int next_file_ = 1000;
  uint64_t next_number_ = 1;
  int64_t calls_ = 0, calls_to_crash_ = -1;
  bool crash_takes_power_ = false;
  bool crashing_ = false;
  double cut_share_ = 1;  ///< of a write that a kill interrupts
};

}  // namespace moonshard::simulation
