// float32 master weights as two halves of 16 bits: a bfloat16 number that the computation reads as
// it lies, and the rest. Training then casts no weights, and a gathered copy of the part of one
// rank is the part itself. As integers: bits of float32 = (bits of high << 16) + low, low signed.
//
// `high` is the nearest bfloat16 number, as a cast gives it, but for exact ties: a cast takes the
// even one, which the low half could not express; here they go away from zero. One number of 65536
// is a tie, and one of two ties differs. The float32 number itself is always exact; of NaN only
// that it is one is kept.
#pragma once

#include <ATen/core/Tensor.h>

namespace moonshard::kernels {

/// The float32 numbers, in a new tensor of high's shape.
at::Tensor joined_float(const at::Tensor& high, const at::Tensor& low);
/// The reverse, into tensors of as many elements: high bfloat16, low int16.
void split_float(const at::Tensor& value, at::Tensor high, at::Tensor low);

}  // namespace moonshard::kernels
