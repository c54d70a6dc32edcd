// Saves of a training run: at once, or behind its next steps.
//
// Behind: the step waits until the rank's part is copied to host memory; a thread writes it. At
// most one save is in progress. The ranks agree on its end through a group of their own, which the
// training's collectives do not wait for.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/save_order.h"
#include "runtime/train/trainer.h"
#include "runtime/weights/base_weights.h"

namespace moonshard::checkpoint {

class Saver {
 public:
  /// The trainer must outlive it.
  explicit Saver(train::Trainer& trainer);
  /// Waits for the save in progress.
  ~Saver();

  /// Takes the host memory for copies of a save behind the steps, in a thread: the first save has
  /// not to wait for it. After a step, when the optimizer has its states.
  void prepare();
  /// Waits for prepare(), and says whether its memory fits what a save would copy.
  bool is_prepared();

  /// Writes a checkpoint into a folder of them and returns its path, where it will be if it is not
  /// waited for. All ranks together; an error on one is an error on all. What fails behind the
  /// steps is in the outcome: the run goes on, and the older checkpoint stands.
  std::filesystem::path save(const std::filesystem::path& folder, const SaveOptions& options = {});

  /// Waits for the save in progress, and returns what became of all that nobody has heard of yet,
  /// the oldest first.
  std::vector<SaveOutcome> finish();
  /// The same without waiting, and without the one in progress.
  std::vector<SaveOutcome> ended();

 private:
  struct Copies;
  struct Behind;

  void join();

  train::Trainer& trainer_;
  std::optional<weights::BaseWeights> base_;  ///< of the trainer's model, once it was looked for
  bool has_base_ = false;                     ///< it was
  std::unique_ptr<Copies> copies_;            ///< host memory, kept from one save to the next
  std::unique_ptr<Behind> behind_;
  std::vector<SaveOutcome> unheard_;  ///< at most the last one that succeeded, and all failures
};

/// Saves at once.
std::filesystem::path save(train::Trainer& trainer, const std::filesystem::path& folder);

}  // namespace moonshard::checkpoint
