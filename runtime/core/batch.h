// One batch of training samples. The first dimension of every tensor is the sample.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard {

struct Batch {
  at::Tensor input_ids;       ///< [B, T] int64; tasks classify and lm
  at::Tensor attention_mask;  ///< [B, T] bool, true for real tokens; padding is on the right
  at::Tensor
      labels;  ///< [B] int64 (classify) or [B, T] int64 (lm, already shifted; -100 is ignored)
  at::Tensor inputs;   ///< [B, D] float; task regress
  at::Tensor targets;  ///< [B, D] float; task regress

  int64_t size() const { return input_ids.defined() ? input_ids.size(0) : inputs.size(0); }
  int64_t tokens() const { return input_ids.defined() ? input_ids.numel() : inputs.size(0); }
};

}  // namespace moonshard
