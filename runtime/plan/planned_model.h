// A model as a plan sees it: the shapes of its layers in stretches (before the blocks, one block, a
// classifier's last one, behind them), and its units under a wrapper. Built once on device "meta";
// predictions of many configurations then cost microseconds each.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/models/model_cost.h"
#include "runtime/models/model_options.h"
#include "runtime/plan/allocator_pieces.h"
#include "runtime/plan/machine_profile.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::models {
class Model;
}

namespace moonshard::plan {

struct PlannedLayer {
  std::string name, kind;
  int64_t in = 0, out = 0;  ///< of matrices; of others `out` is the width
  int64_t weight = 0;       ///< elements
  int64_t bias = 0;         ///< elements of a trained bias
  bool is_matrix = false;
  bool is_small = false;      ///< a norm's weight
  bool trained = true;        ///< its weight
  bool one_position = false;  ///< one position per sample, however long it is
  bool by_samples = false;    ///< forms one sample's gradient after the other, in chunks
  bool is_shared = false;     ///< its weight has other uses
  bool is_adapter = false;    ///< one of LoRA's two layers beside another
  int64_t adapted = 0;        ///< trained elements of the adapter beside it
  size_t beside = 0;          ///< of an adapter: the place of its layer in the stretch
  size_t input = 0;           ///< layers of a stretch with the same number read the same input
  int64_t readers = 1;        ///< trained ones that read it
};

inline constexpr size_t kNoStretch = static_cast<size_t>(-1);

/// The steps of a pass: 0 is before the blocks, 1 to num_blocks are blocks that are alike, then
/// comes one that runs for a single token of each sample, where the model has it; the last is
/// behind.
enum class StretchKind { Before, Block, LastBlock, Behind };

/// Something of each kind of stretch.
template <class T>
struct ByStretch {
  T before, block, last_block, behind;

  const T& of(StretchKind kind) const { return *all()[static_cast<size_t>(kind)]; }
  T& of(StretchKind kind) { return *all()[static_cast<size_t>(kind)]; }
  std::array<const T*, 4> all() const { return {&before, &block, &last_block, &behind}; }
  std::array<T*, 4> all() { return {&before, &block, &last_block, &behind}; }
};

struct PlannedUnit {
  bool is_root = false;
  bool reshards = false;     ///< released between forward and backward (unit_policy.h)
  bool offloads = false;     ///< its parts are in host memory
  bool narrow_sums = false;  ///< gradients travel in 16 bits
  int64_t compute_bytes = 4;
  bool splits = false;          ///< master weights in halves
  bool in_compute_type = true;  ///< parts can be read as they lie
  int64_t trained = 0;          ///< elements
  int64_t tensors = 0;          ///< trained parameters
  int64_t small = 0;            ///< of them, norms' weights and biases
  int64_t trained_shard = 0;    ///< of one rank's part, padding included
  int64_t frozen_shard = 0;
  int64_t ranks = 1;              ///< that hold the parts
  std::vector<size_t> stretches;  ///< where its layers run
  /// The last of them in backward, which is the first that it reaches; none: kNoStretch.
  size_t backward_ends_at = 0;
  /// Of that stretch's backward, what has run when the unit's last gradient is there: below 1 where
  /// others' layers come before its own in the stretch.
  double ends_after = 1;
  /// Where its clipped sums are complete, which go forward: uses of one weight are summed up with
  /// the first of them. Nothing trained: kNoStretch.
  size_t sums_end_at = kNoStretch;
  int64_t whole() const { return (trained_shard + frozen_shard) * ranks; }
  int64_t whole_trained() const { return trained_shard * ranks; }
};

/// Layers by stretch; `block` is one that is trained as most are.
class PlannedModel : public ByStretch<std::vector<PlannedLayer>> {
 public:
  /// Options as they resolve (experiment::resolve_experiment); sizes of `seq_length` tokens. With
  /// `fused`, layers are a GPU's kernels; `fixed_segments`: its allocator's do not grow.
  PlannedModel(const models::ModelOptions& options, int64_t seq_length, bool fused,
               bool fixed_segments = false);
  PlannedModel(const models::ModelOptions& options, int64_t seq_length,
               const MachineProfile& machine);
  ~PlannedModel();

  const models::ModelOptions& options() const { return options_; }
  /// Units under a wrapper, in forward order; computed once per wrapper and number of ranks. Safe
  /// from several threads.
  const std::vector<PlannedUnit>& units(const sharding::ShardingOptions& sharding, int ranks) const;
  int64_t batch_bytes(int64_t batch_size) const;
  /// A tensor of so many bytes, as the device's allocator has it.
  double held(double bytes) const { return fixed_segments_ ? as_allocated(bytes) : bytes; }
  size_t num_stretches() const { return static_cast<size_t>(num_blocks) + 2 + (has_last ? 1 : 0); }
  StretchKind kind_of(size_t stretch) const {
    if (stretch == 0) return StretchKind::Before;
    if (stretch + 1 == num_stretches()) return StretchKind::Behind;
    return stretch <= static_cast<size_t>(num_blocks) ? StretchKind::Block : StretchKind::LastBlock;
  }
  const std::vector<PlannedLayer>& layers_of(size_t stretch) const { return of(kind_of(stretch)); }
  int64_t blocks_in_backward() const;
  /// The stretch's first layers read the batch as it is, on a CPU: nothing more is kept of it.
  bool reads_batch(size_t stretch) const {
    return !fused && before.empty() && stretch == 1 && compute_bytes == value_bytes;
  }

  int64_t tokens = 0;      ///< positions of a sample
  int64_t num_blocks = 0;  ///< that are alike
  bool has_last = false;   ///< and one of kind LastBlock
  /// Where backward ends: nothing before this stretch is trained.
  size_t first_in_backward = 0;
  int64_t num_parameters = 0, num_trained = 0;
  double flops_per_token = 0;
  int64_t value_bytes = 4, compute_bytes = 4, sum_bytes = 4;  ///< of a number
  bool splits = false;                                        ///< master weights in halves
  bool fused = false;
  models::ActivationBytes kept;        ///< by layers in one backward pass
  models::ActivationBytes kept_twice;  ///< where backward runs twice, by the same kernels
  int64_t adapter_bytes = 0;           ///< of a token and block: rows between two layers of LoRA
  int64_t shown_block = 0;             ///< that `block` is

 private:
  int64_t usual_block() const;
  double share_from(size_t stretch, size_t first_layer) const;

  models::ModelOptions options_;
  int64_t seq_length_;
  bool fixed_segments_;
  std::shared_ptr<models::Model> model_;
  std::vector<size_t> stretch_of_;  ///< by layer
  std::vector<size_t> summed_at_;   ///< by layer: the stretch of its weight's first use
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<PlannedUnit>> units_;
};

}  // namespace moonshard::plan
