// Margins of squared norms: a norm must never come out too small, or a sample would exceed the
// bound that it is clipped to. The definitions, for tensors of any shape and device.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/position_lengths/bounded_square.h"

namespace moonshard::kernels {

/// Squared norms from products of Gram matrices (double), given the sums of absolute values. The
/// sum has terms of both signs and errs by about 3e-7 (float32) of the sum of absolute values:
/// where that is many times larger (kTrustedCancellation), an upper bound of the error is added.
/// `wide` is the dtype of the matrices: in double the error is far smaller. For GPUs, where looking
/// at the values would stop the stream.
at::Tensor bounded_gram(const at::Tensor& value, const at::Tensor& magnitude,
                        at::ScalarType wide = at::kFloat);

/// The most that a squared norm from float32 Gram matrices of rows of that width can lack because
/// products of rows below 1.2e-38 count as 0: each is multiplied by one of the other matrix.
/// `spread` is (sum of |a_t|)^2 + (sum of |g_t|)^2. Far below rounding unless one of the two is
/// huge.
at::Tensor gram_underflow(const at::Tensor& spread, int64_t width);

/// Squared norms for sums of parts whose lengths add up to `magnitudes`. Where parts cancel, the
/// sum that is formed later from scaled parts has its own rounding error, some eps times the
/// magnitude. That error is part of the contribution: it must count, or an adversarial sample would
/// exceed the bound. Where it is below 1e-4 of the norm, the norm stays as it is. `wide` is the
/// dtype of that sum.
at::Tensor with_rounding_of_sum(const at::Tensor& squares, const at::Tensor& magnitudes,
                                at::ScalarType wide);

}  // namespace moonshard::kernels
