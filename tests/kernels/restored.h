// Kept gradients as what they stand for.
#pragma once

#include <ATen/ATen.h>

#include "kernels/flash_norm/flash_norm.h"

namespace moonshard::kernels {

/// Numbers times their units, [B, o, i] in double.
inline at::Tensor restored(const KeptGradient& kept) {
  const at::Tensor numbers = kept.numbers.to(at::kDouble);
  const at::Tensor units = kept.units.to(at::kDouble).repeat_interleave(kUnitElements, 1);
  return numbers * units.view(numbers.sizes());
}

}  // namespace moonshard::kernels
