// Raw launchers of cast.
#pragma once

#include <cstdint>

#include "kernels/common/number_format.h"

namespace moonshard::kernels {

/// `count` elements, contiguous, not overlapping. bfloat16 to float32 is not implemented: unused.
void launch_cast(void* to, NumberFormat to_format, const void* from, NumberFormat from_format,
                 int64_t count, void* stream);

}  // namespace moonshard::kernels
