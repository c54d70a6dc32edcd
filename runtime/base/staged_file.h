// Files that are either whole or absent. A write goes to a temporary file beside the target, is
// synced, renamed, and the folder is synced: a kill, a full disk or a power cut leaves the old file
// intact.
#pragma once

#include <filesystem>
#include <string_view>

#include "runtime/base/read_file.h"

namespace moonshard {

/// Throws IoError "PATH: cannot ACTION: REASON; ADVICE" for an errno of a write.
[[noreturn]] void fail_to_write(const std::filesystem::path& path, const char* action, int error);

/// A file that is being written: write, finish, commit. What is not committed vanishes.
class StagedFile {
 public:
  /// Whether Ctrl-C ends a write; results of finished work are written to the end.
  enum class OnInterrupt { Stop, GoOn };

  explicit StagedFile(const std::filesystem::path& target,
                      OnInterrupt on_interrupt = OnInterrupt::Stop);
  ~StagedFile();
  StagedFile(StagedFile&& other) noexcept;
  StagedFile& operator=(StagedFile&&) = delete;

  const std::filesystem::path& target() const { return target_; }
  void write(const void* data, int64_t bytes);
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
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

/// Makes renames in a folder last through a power cut.
void sync_folder(const std::filesystem::path& folder);

/// Removes temporaries that dead writers left in a folder (not in its sub-folders). Returns how
/// many.
int sweep_stale_temporaries(const std::filesystem::path& folder);

/// True for the names of StagedFile's temporaries; readers pass over them.
bool is_temporary_name(std::string_view file_name);

}  // namespace moonshard
