// Which token comes next, given scores: on the scores' device, without the host waiting for it.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/generate/generate_options.h"

namespace moonshard::generate {

class Sampler {
 public:
  Sampler(const GenerateOptions& options, int64_t rows, c10::Device device);

  /// Row b of the next calls is number numbers[b] of all that are generated under this seed.
  void begin(const std::vector<int64_t>& numbers);
  /// scores [B, V], step [1] int64: how many tokens each row has been given. Returns ids [B].
  /// Probabilities are counted in whole parts of 2^30: their sums do not depend on an order, so
  /// equal scores give equal tokens on any device and in any batch.
  at::Tensor choose(const at::Tensor& scores, const at::Tensor& step) const;

 private:
  bool is_greedy() const { return options_.temperature == 0; }

  GenerateOptions options_;
  at::Tensor draws_;  ///< [B, max_new_tokens] double, uniform in [0, 1); undefined when greedy
};

/// Parts [B, V] without those of tokens beyond the fewest largest whose sum reaches `share` of all.
/// Tokens as probable as the last of these stay, too.
at::Tensor nucleus(const at::Tensor& parts, double share);

}  // namespace moonshard::generate
