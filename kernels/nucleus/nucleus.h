// The smallest of the fewest largest numbers of a row whose sum reaches a share of the row's: the
// border of nucleus sampling (Holtzman et al., "The Curious Case of Neural Text Degeneration",
// 2020).
//
// parts [B, V] int32, from 0 to 2^30; sums are of whole numbers, so that every device finds the
// same border. On a GPU one kernel finds it, a bit at a time; the CPU takes ATen operations.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard::kernels {

/// [B, 1] int32: the largest border for which numbers that are at least as large sum up to
/// ceil(share * sum of the row). 0 < share <= 1.
at::Tensor nucleus_border(const at::Tensor& parts, double share);
at::Tensor nucleus_border_ref(const at::Tensor& parts, double share);

}  // namespace moonshard::kernels
