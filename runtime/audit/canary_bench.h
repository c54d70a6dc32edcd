// A tiny language model in which every sample of the audit is a canary, and the real trainer around
// it. Canary i repeats token i with label i: row i of the embedding and row i of the output layer
// are its own, and hold nearly all of its gradient in about equal parts. The release of those rows
// depends on no other canary, so that one training step is one experiment per canary, with
// independent noise.
//
// No part of training is replaced: all layers are trained, with the engine's norms and the
// trainer's clipping, reduction, noise and optimizer. The adversary chose model, weights and
// samples, and sees the weights after every step; the guarantee allows both.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/sharding/sharding_options.h"
#include "runtime/train/trainer.h"

namespace moonshard::audit {

struct BenchOptions {
  std::string engine;
  std::string clipping = "flat";
  double sigma = 1;
  bool secure = false;
  int64_t expected_batch_size = 1;
  int64_t grad_accum = 1;
  std::string device = "auto";
  int64_t seed = 0;  ///< of weights and noise
  sharding::ShardingOptions sharding;
  std::shared_ptr<privacy::StepHooks> hooks;
};

/// What a step released about the canaries' rows, over C: the clipped sum plus noise of standard
/// deviation sigma, if the implementation is correct.
struct Released {
  at::Tensor embedding, output;  ///< [rows, width], double, on the host
};
Released difference(const Released& one, const Released& other);

class CanaryBench {
 public:
  static constexpr int64_t kRows = 512;  ///< canaries that the model has room for

  CanaryBench(const BenchOptions& options, std::shared_ptr<comm::World> world);

  /// One training step on these canaries (no duplicates), distributed over the ranks; all ranks
  /// make the same call. Without canaries the step is noise alone.
  Released step(const std::vector<int64_t>& canaries);

  /// How far the release points along each canary's gradient [rows]: 0 for one that was left out
  /// and about 1 for one that took part, plus noise.
  at::Tensor project(const Released& released) const;
  /// Root of the mean square over all rows but the first `touched`: of the noise alone.
  double untouched_size(const Released& released, int64_t touched) const;

 private:
  Batch batch_of(const std::vector<int64_t>& canaries) const;
  void find_directions();
  Released weights();

  BenchOptions options_;
  std::shared_ptr<comm::World> world_;
  std::shared_ptr<models::Model> model_;
  double lr_;
  Released direction_;  ///< each canary's gradient over its own rows; both together have norm 1
  std::unique_ptr<train::Trainer> trainer_;
  Released before_;
};

}  // namespace moonshard::audit
