// One batch of training samples. The first dimension of every tensor is the sample.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard {

struct Batch {
  at::Tensor input_ids;       ///< [B, T] int64; tasks classify and lm
  at::Tensor attention_mask;  ///< [B, T] bool, true for real tokens; padding is on the right
  at::Tensor labels;          ///< [B] int64 (classify, denoise) or [B, T] int64 (lm, already
                              ///< shifted; -100 is ignored)
  at::Tensor inputs;          ///< [B, D] (regress) or noisy images [B, C, H, W] (denoise)
  at::Tensor targets;         ///< as inputs: what is regressed, or the noise
  at::Tensor timesteps;       ///< [B] int64; task denoise

  int64_t size() const { return input_ids.defined() ? input_ids.size(0) : inputs.size(0); }
  /// Every tensor that it has, changed by a function of one.
  template <class Change>
  Batch each(Change change) const {
    const auto one = [&](const at::Tensor& tensor) {
      return tensor.defined() ? change(tensor) : tensor;
    };
    return {one(input_ids), one(attention_mask), one(labels),
            one(inputs),    one(targets),        one(timesteps)};
  }
  /// Samples first … first + count - 1.
  Batch slice(int64_t first, int64_t count) const {
    return each([&](const at::Tensor& whole) { return whole.narrow(0, first, count); });
  }
};

}  // namespace moonshard
