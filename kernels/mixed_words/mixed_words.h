// mixed_word of whole tensors, by LibTorch's operations on any device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include "kernels/mixed_words/mixed_word.h"

namespace moonshard::kernels {

/// A word as LibTorch's operations on int64 take it.
at::Scalar word_scalar(uint64_t word);

/// In place. int64, whose bits are those of the unsigned numbers.
void mix_words(at::Tensor& x);

}  // namespace moonshard::kernels
