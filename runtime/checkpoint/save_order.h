// The order of a save, whatever is saved: what makes a checkpoint whole or absent. Needs no
// LibTorch: the saver passes in what writes its tensors, a simulation what it likes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/checkpoint/all_or_none.h"
#include "runtime/checkpoint/checkpoint_folder.h"

namespace moonshard::checkpoint {

struct SaveOptions {
  bool wait = true;        ///< until it is on the disk
  int64_t keep = 0;        ///< how many of the newest stay; 0: all
  int64_t keep_every = 0;  ///< those of steps that it divides stay as well; 0: none
  bool whole = false;      ///< also frozen weights of a LoRA run that lie in a folder anyway
};

/// What became of a save; the same on all ranks, but for the times.
struct SaveOutcome {
  std::filesystem::path path;
  int64_t step = 0;
  double waited_s = 0;   ///< by the step: for an earlier save, and for the copy
  double written_s = 0;  ///< from then on
  std::string error;     ///< empty when it is on the disk
};

/// For users: "the checkpoint of step … was not saved", with the reason.
std::string failed_save(int64_t step, const std::string& error);

struct IndexText {
  std::string text, seal;
};

/// Every rank's part first, then on rank 0 the index of what they answered, the checkpoint's name,
/// `latest`, and last the removal of older ones. `partial` is rank 0's, and is gone afterwards.
/// Returns the seal of the index on every rank; throws on all what failed on one.
std::string write_in_order(
    AllOrNone& ranks, std::unique_ptr<PartialCheckpoint>& partial, const SaveOptions& options,
    const std::function<std::string()>& write_part,
    const std::function<IndexText(const std::vector<std::string>& answers)>& make_index);

}  // namespace moonshard::checkpoint
