// The report of a training step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/comm/world.h"
#include "runtime/privacy/clip_engine.h"
#include "runtime/profile/memory.h"
#include "runtime/profile/timeline.h"
#include "runtime/sharding/parallel.h"

namespace moonshard::train {

struct StepDetails;

/// What one step did. Counts, loss and shares are over all ranks; norms, factors, times and memory
/// are this rank's own.
struct StepReport {
  int64_t step = 0;  ///< 1 for the first
  double loss = 0;   ///< mean over the samples
  double lr = 0;
  int64_t batch_size = 0;  ///< samples of all micro-batches
  int64_t tokens = 0;
  std::vector<double> norms;      ///< per sample; empty for engines that do not clip
  std::vector<double> all_norms;  ///< of all ranks in their order, the same on each
  /// norm_reduce = sum: squared norms of this rank's samples before the sum over ranks, whose roots
  /// are `norms`; else empty.
  std::vector<double> squares_before_sum;
  std::vector<double> factors;      ///< per sample; empty too with per-layer clipping
  double clip_fraction = 0;         ///< share of samples whose norm was above the bound
  double clip_bound = 0;            ///< C of this step; 0 for engines that do not clip
  std::optional<double> grad_norm;  ///< of the mean gradient; with clip_global_norm
  int64_t privacy_steps = 0;        ///< private updates so far, those before a resume included
  std::optional<double> epsilon;    ///< spent so far, an upper bound; none without a claim
  int64_t dropped = 0;              ///< samples without a finite gradient: they contributed nothing
  int64_t kept_bytes = 0;           ///< what the engine held across layers
  double time_ms = 0;               ///< sum of the phases
  std::vector<std::pair<std::string, double>> phases;  ///< (phase, ms), in order
  std::vector<privacy::LayerNorms> layers;             ///< when asked for, micro-batches in order
  profile::MemoryReading memory;
  sharding::ShardingMemory sharding;           ///< what the wrapper holds; 0 without one
  std::vector<comm::Traffic> traffic;          ///< collectives of this rank
  std::vector<profile::Span> spans;            ///< when asked for
  std::shared_ptr<const StepDetails> details;  ///< when asked for (step_watch.h)
};

// What ranks exchange about a step besides gradients: how many samples each has, sums of
// losses, all ranks' norms. On separate groups, so that they never wait behind gradients.

/// One rank's part of a step, before it begins.
struct OwnCounts {
  int64_t samples = 0, tokens = 0;
  int64_t most_samples = 0, most_tokens_per_sample = 0;  ///< of its micro-batches
  int64_t step = 0;                                      ///< that it is in
  int64_t way = 0;                ///< how it could run, as a graph or not (StepGraph::Way)
  bool awaits_decision = false;   ///< about graphs: figures of the step are wanted behind it
  bool takes_other_plan = false;  ///< by this rank's trial (ClipEngine)
};

struct RankCounts {
  std::vector<int64_t> samples;  ///< by rank
  int64_t all_samples = 0, all_tokens = 0;
  int64_t most_samples = 0, most_tokens_per_sample = 0;  ///< of any rank's micro-batches
  int64_t way = 0;                 ///< the least of all ranks': what each of them can do
  bool awaits_decision = false;    ///< any rank
  bool takes_other_plan = false;   ///< the first rank, for all
  int64_t before(int rank) const;  ///< samples of the ranks before this one
};

/// On the host: waits for a GPU.
std::vector<double> to_doubles(const at::Tensor& tensor);

/// Sums over samples of all ranks.
struct LossSums {
  double loss = 0;  ///< of finite ones
  double finite = 0, not_finite = 0;
};

class RankStatistics {
 public:
  RankStatistics(comm::World& world, c10::Device device);

  /// Starts the exchange of counts; all ranks call it once a step.
  void start_counts(const OwnCounts& own);
  /// The result of that exchange; waits the first time. Throws CommError when a rank is in another
  /// step: it has failed alone in an earlier one, or skipped it.
  const RankCounts& counts();
  LossSums sum_losses(const at::Tensor& losses);
  /// Whether it is so on any rank.
  bool any(bool here);
  /// Begins to gather the norms [B] of every rank (B may differ, and be 0; undefined means 0).
  void start_norms(const at::Tensor& norms);
  /// All norms in the order of ranks [sum of B], double, on the host; the same on every rank.
  at::Tensor norms();
  /// Every rank's host numbers [n] as [ranks, n].
  at::Tensor of_all(const at::Tensor& own) const;
  /// Sum over ranks, at once. For the timing mode norm_reduce = "sum".
  at::Tensor summed(const at::Tensor& tensor);

 private:
  bool alone() const { return size_ == 1; }

  int size_;
  int64_t trainer_;  ///< number among those that ranks have made
  c10::Device on_;   ///< where norms are
  std::shared_ptr<comm::Communicator> host_, device_;
  comm::Pending counts_under_way_, norms_under_way_;
  at::Tensor counts_row_, norms_row_;
  RankCounts counts_;
};

}  // namespace moonshard::train
