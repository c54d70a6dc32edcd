// What is added to a squared norm so that it is never too small, for one number; shared by host and
// device. norm_margins.h has the same for tensors, and the reasons.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/common/philox.h"  // MS_HOST_DEVICE
#include "kernels/position_lengths/position_lengths_launch.h"

namespace moonshard::kernels {

/// A sum from Gram matrices is trusted while the sum without signs is at most so many times larger.
constexpr double kTrustedCancellation = 16;
/// Its error, as a share of the sum without signs.
constexpr double kGramError = 1e-6;
/// Twice the smallest normal number of float32: what products of rows may have lost, per column.
constexpr double kLostProducts = 2.4e-38;
/// Rounding of the sum that is formed later: so much of the parts' lengths together, counted where
/// it is more than a share of kNoticed of the norm.
constexpr double kFloatRounding = 4 * 1.2e-7, kDoubleRounding = 4 * 2.2e-16, kNoticed = 1e-4;

/// The gain that makes up for flash_norm's cut-off sums of products: the multiplying unit adds 16
/// positions at a time and loses at most 2^-24 of the sum each time, its square twice that.
MS_HOST_DEVICE double cut_off_squares(int64_t positions) {
  return 1 + static_cast<double>((positions + 15) / 16) * 1.1920928955078125e-7;
}

/// `length`, `spread`: as position_lengths gives them. NaN and infinity pass through.
MS_HOST_DEVICE double bounded_square(const SquareTerm& term, double value, double magnitude,
                                     double length, double spread) {
  double square = value * term.gain;
  if (term.source == NormSource::Gram) {
    if (magnitude > value * kTrustedCancellation)
      square = (value < 0 ? 0 : value) + magnitude * kGramError;
    square += spread * term.underflow;
  }
  const double norm = sqrt(square < 0 ? 0 : square), error = length * kFloatRounding;
  return error > norm * kNoticed ? (norm + error) * (norm + error) : square;
}

}  // namespace moonshard::kernels
