// One batch of training samples. The first dimension of every tensor is the sample.
#pragma once

#include <algorithm>

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
  /// [B] float, 1 for samples and 0 for rows that only fill the batch up: their gradients, losses
  /// and norms count nowhere. Undefined: all are samples. Made by data::padded.
  at::Tensor counted{};
  int64_t padding = 0;  ///< how many such rows there are; they are the last
  at::Tensor words{};   ///< [B] int64: random words of the samples in this step (Model::prepare)

  /// Rows, those that fill it up included.
  int64_t size() const { return input_ids.defined() ? input_ids.size(0) : inputs.size(0); }
  int64_t samples() const { return size() - padding; }
  /// Every tensor that it has, changed by a function of one.
  template <class Change>
  Batch each(Change change) const {
    const auto one = [&](const at::Tensor& tensor) {
      return tensor.defined() ? change(tensor) : tensor;
    };
    return {one(input_ids), one(attention_mask), one(labels), one(inputs), one(targets),
            one(timesteps), one(counted),        padding,     one(words)};
  }
  /// Rows first … first + count - 1.
  Batch slice(int64_t first, int64_t count) const {
    Batch part = each([&](const at::Tensor& whole) { return whole.narrow(0, first, count); });
    part.padding = std::clamp<int64_t>(first + count - samples(), 0, count);
    return part;
  }
};

}  // namespace moonshard
