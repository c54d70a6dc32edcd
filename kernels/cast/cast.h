// Casts a whole array to another dtype: a shard of float32 master weights to the compute dtype, in
// one launch near memory speed.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard::kernels {

/// to[i] = from[i], rounded to nearest (ties to even). Tensors of one shape on one device. On a
/// GPU contiguous float32 -> bfloat16, float32 -> float32 and bfloat16 -> bfloat16 take the kernel,
/// bit for bit as the reference; everything else takes LibTorch's copy.
void cast_copy(at::Tensor& to, const at::Tensor& from);
void cast_copy_ref(at::Tensor& to, const at::Tensor& from);

}  // namespace moonshard::kernels
