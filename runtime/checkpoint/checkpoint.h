// Checkpoints of a training run: everything that the next step depends on, as a folder that is
// written atomically. docs/checkpoints.md has the format; saver.h writes them.
#pragma once

#include <filesystem>
#include <optional>

#include "runtime/checkpoint/saver.h"
#include "runtime/train/trainer.h"

namespace moonshard::checkpoint {

struct ResumeOptions {
  bool if_any = false;      ///< no error if there is nothing to resume from
  bool other_seed = false;  ///< continue with this model's seed in place of the saved one
};

/// Resumes from a checkpoint, or from the newest in a folder of them: of any number of ranks and
/// any sharding. Nothing is changed when it does not fit. Returns its step; nothing when there is
/// none and options.if_any allows it. All ranks together.
std::optional<int64_t> resume(train::Trainer& trainer, const std::filesystem::path& where,
                              const ResumeOptions& options = {});

}  // namespace moonshard::checkpoint
