// Folders of checkpoints, and how one is written atomically:
//   DIR/.step_00000120.partial-<id>/   while it is written; a dead writer's is removed later
//   DIR/step_00000120/                 complete: rank files first, index.json last, then renamed
//   DIR/latest                         the name of the newest, changed after that
// A kill or a power cut at any moment leaves the older checkpoint, and `latest` names a whole one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/files.h"

namespace moonshard::checkpoint {

inline constexpr const char* kIndexName = "index.json";

/// "step_00000120"
std::string checkpoint_name(int64_t step);

/// The checkpoint at `where`: that folder itself, or the one that its `latest` names, or else the
/// one with the highest step. Empty when there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& where);

/// Names of all complete ones in a folder: the one that `latest` names, then by step, the highest
/// first.
std::vector<std::string> checkpoints_newest_first(const std::filesystem::path& folder);

/// Removes what dead writers left in a folder of checkpoints, unless a save is in progress there.
void sweep_partial_checkpoints(const std::filesystem::path& folder);

/// Removes older checkpoints but the `keep` newest (0: removes none) and those of steps that
/// `keep_every` divides; `newest` always stays. A kill leaves each whole or gone. What cannot be
/// removed stays.
void prune_checkpoints(const std::filesystem::path& folder, const std::string& newest, int64_t keep,
                       int64_t keep_every);

/// A checkpoint being written, on the leading rank. Removed by the destructor unless published.
class PartialCheckpoint {
 public:
  /// Makes the folder and, in it, an empty partial one; removes stale ones. Throws IoError, and
  /// UsageError when another process is saving there.
  PartialCheckpoint(const std::filesystem::path& folder, int64_t step);
  ~PartialCheckpoint();

  const std::string& id() const { return id_; }
  const std::filesystem::path& folder() const { return folder_; }
  int64_t step() const { return step_; }
  /// Where its files go.
  const std::filesystem::path& path() const { return partial_; }
  /// All other files are there: writes the index, renames the folder and points `latest` to
  /// it. A checkpoint of the same step is replaced atomically.
  void publish(const std::string& index_text);

 private:
  std::filesystem::path folder_, partial_, target_;
  int64_t step_;
  std::string id_;
  Descriptor lock_;
};

}  // namespace moonshard::checkpoint
