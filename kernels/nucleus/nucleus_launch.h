// Raw launcher of nucleus_border: contiguous rows of `width` numbers.
#pragma once

#include <cstdint>

namespace moonshard::kernels {

/// parts [rows, width] from 0 to 2^30, borders [rows].
void launch_nucleus_border(const int32_t* parts, int64_t rows, int64_t width, double share,
                           int32_t* borders, void* stream);

}  // namespace moonshard::kernels
