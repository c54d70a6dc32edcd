// What ranks exchange about a step besides gradients: how many samples each has, sums of
// losses, all ranks' norms. On separate groups, so that they never wait behind gradients.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/comm/world.h"

namespace moonshard::train {

/// One rank's part of a step, before it begins.
struct OwnCounts {
  int64_t samples = 0, tokens = 0;
  int64_t most_samples = 0, most_tokens_per_sample = 0;  ///< of its micro-batches
  int64_t step = 0, trainer = 0;                         ///< which step of which trainer it is in
};

struct RankCounts {
  std::vector<int64_t> samples;  ///< by rank
  int64_t all_samples = 0, all_tokens = 0;
  int64_t most_samples = 0, most_tokens_per_sample = 0;  ///< of any rank's micro-batches
  int64_t before(int rank) const;                        ///< samples of the ranks before this one
};

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
  c10::Device on_;  ///< where norms are
  std::shared_ptr<comm::Communicator> host_, device_;
  comm::Pending counts_under_way_, norms_under_way_;
  at::Tensor counts_row_, norms_row_;
  RankCounts counts_;
};

}  // namespace moonshard::train
