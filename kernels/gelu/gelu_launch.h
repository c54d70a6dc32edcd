// Raw launchers of gelu: contiguous arrays of `count` numbers of one dtype.
#pragma once

#include <cstdint>

#include "kernels/common/number_format.h"

namespace moonshard::kernels {

void launch_gelu_forward(const void* x, void* result, int64_t count, NumberFormat format,
                         void* stream);

/// x_gradient may be g itself.
void launch_gelu_backward(const void* g, const void* x, void* x_gradient, int64_t count,
                          NumberFormat format, void* stream);

}  // namespace moonshard::kernels
