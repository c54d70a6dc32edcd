// Dropout of samples on the CPU, by loops on LibTorch's threads.
#pragma once

#include <c10/core/ScalarType.h>

#include "kernels/sample_dropout/sample_dropout_launch.h"

namespace moonshard::kernels {

/// False for dtypes that have no loop.
bool sample_dropout_cpu(const RawDropout& p, c10::ScalarType type);

}  // namespace moonshard::kernels
