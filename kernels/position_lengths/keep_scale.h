// Computes one scale; shared by host and device.
#pragma once

#include <cmath>

#include "kernels/common/philox.h"  // MS_HOST_DEVICE

namespace moonshard::kernels {

/// The power of two that takes a length into [16384, 32768); see position_lengths.h.
MS_HOST_DEVICE float keep_scale_of(double length) {
  if (!(length > 0) || !(length <= 1.7976931348623157e308)) return 1.0f;
  int exponent;
  frexp(length, &exponent);   // length = m 2^exponent, m in [1/2, 1)
  int power = 15 - exponent;  // scaled: m 2^15 in [16384, 32768)
  power = power < -126 ? -126 : power > 126 ? 126 : power;
  return ldexpf(1.0f, power);
}

}  // namespace moonshard::kernels
