// Files opened for reading, by position into memory of the caller's.
//
// Why there is no memory map: a file that shrinks under a map kills the process (SIGBUS), as does
// an I/O error of a network disk. Every read of a tensor copies anyway, into memory of its own or
// onto a device, so pread costs the same one copy, and a short answer is an ordinary error.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace moonshard {

/// Throws IoError "PATH: cannot ACTION: REASON; ADVICE" for an errno.
[[noreturn]] void fail_to_read(const std::filesystem::path& path, const char* action, int error);

/// Throws UsageError for a path that no system call takes.
void check_path_length(const std::filesystem::path& path);

/// An open file descriptor; closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int number() const { return number_; }
  /// True when the system accepted it; some disks report a failed write only here.
  bool close();

 private:
  int release();
  int number_;
};

/// A regular file, open for reading.
class ReadOnlyFile {
 public:
  /// Throws IoError when there is none, or when it is a folder, a pipe or a device.
  static ReadOnlyFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  /// When it was opened.
  int64_t size() const { return size_; }
  /// Fills `bytes` bytes at `target` from that position. Throws IoError when the file has become
  /// shorter, Interrupted when the user asked to stop. `what` names the piece for the error.
  void read_at(int64_t position, void* target, int64_t bytes, const std::string& what) const;

 private:
  std::filesystem::path path_;
  Descriptor file_;
  int64_t size_ = 0;
};

// Files that are either whole or absent. A write goes to a temporary file beside the target, is
// synced, renamed, and the folder is synced: a kill, a full disk or a power cut leaves the old file
// intact.

/// Throws IoError "PATH: cannot ACTION: REASON; ADVICE" for an errno of a write.
[[noreturn]] void fail_to_write(const std::filesystem::path& path, const char* action, int error);

/// Who may read what is written: the umask decides, or the owner alone whatever the umask is, from
/// the moment it is created. Private: copies of a user's data, weights, logs, what noise comes
/// from.
enum class Access { Shared, Private };

constexpr unsigned file_mode(Access access) {
  return access == Access::Private ? 0600 : 0644;
}

/// Makes the folder and those above it that are missing, and syncs each into the one above it: a
/// power cut does not take a new folder with all that was synced in it. Throws IoError.
void create_folders(const std::filesystem::path& folder, Access access);
/// The same for the owner alone.
void create_private_folders(const std::filesystem::path& folder);

/// Folder for locks and sockets of this user's processes on this machine: MOONSHARD_LOCK_DIR, or a
/// per-user one in /tmp. Made when missing, for this user alone. Throws IoError when it is
/// another's.
std::filesystem::path user_folder();

/// A file that is being written: write, finish, commit. What is not committed vanishes.
class StagedFile {
 public:
  /// Whether Ctrl-C ends a write; results of finished work are written to the end.
  enum class OnInterrupt { Stop, GoOn };

  explicit StagedFile(const std::filesystem::path& target,
                      OnInterrupt on_interrupt = OnInterrupt::Stop, Access access = Access::Shared);
  ~StagedFile();
  StagedFile(StagedFile&& other) noexcept;
  StagedFile& operator=(StagedFile&&) = delete;

  const std::filesystem::path& target() const { return target_; }
  void write(const void* data, int64_t bytes);
  /// Over bytes that were written before; the next write() still goes to the end.
  void write_at(int64_t position, const void* data, int64_t bytes);
  /// Brings all bytes to the disk and closes the file.
  void finish();
  /// Takes the target's name.
  void commit();

 private:
  std::filesystem::path target_, aside_;  ///< aside_ is empty once it is renamed
  Descriptor file_;
  OnInterrupt on_interrupt_;
};

/// Writes bytes to path atomically and durably. Throws IoError; the old file then stands as it was.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes,
                           Access access = Access::Shared);

/// Adds to the end of a file, which is made where it is missing. For logs and what can be made
/// again: not atomic, not synced. A link in the file's place is not followed. Throws IoError.
void append_to_file(const std::filesystem::path& path, std::string_view bytes, Access access);
/// The same for the owner alone.
void append_private(const std::filesystem::path& path, std::string_view bytes);

/// Makes renames in a folder last through a power cut.
void sync_folder(const std::filesystem::path& folder);

/// Removes temporaries that dead writers left in a folder (not in its sub-folders). Returns how
/// many.
int sweep_stale_temporaries(const std::filesystem::path& folder);

/// True for the names of StagedFile's temporaries; readers pass over them.
bool is_temporary_name(std::string_view file_name);

}  // namespace moonshard
