// Raw launchers of swiglu: contiguous arrays of `count` numbers of one dtype.
#pragma once

#include <cstdint>

#include "kernels/common/number_format.h"

namespace moonshard::kernels {

void launch_swiglu_forward(const void* gate, const void* up, void* result, int64_t count,
                           NumberFormat format, void* stream);

/// up_gradient may be g itself.
void launch_swiglu_backward(const void* g, const void* gate, const void* up, void* gate_gradient,
                            void* up_gradient, int64_t count, NumberFormat format, void* stream);

}  // namespace moonshard::kernels
