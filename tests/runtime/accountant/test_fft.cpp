// The transform against its definition, and its own bound on errors.
#include "runtime/accountant/fft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "tests/runtime/accountant/random.h"

namespace moonshard::accountant {
namespace {

size_t reversed(size_t value, size_t size) {
  size_t result = 0;
  for (size_t bit = 1; bit < size; bit *= 2) result = 2 * result + ((value & bit) != 0 ? 1 : 0);
  return result;
}

TEST(Fft, EqualsItsDefinitionAndGoesBack) {
  Random random(31);
  for (size_t size = 1; size <= 2048; size *= 2) {
    std::vector<double> re(size), im(size);
    double sum = 0;
    for (size_t k = 0; k < size; ++k) {
      re[k] = random.uniform() - 0.5, im[k] = random.uniform() - 0.5;
      sum += std::hypot(re[k], im[k]);
    }
    const std::vector<double> re_before = re, im_before = im;
    const Fft fft(size);
    fft.forward(re.data(), im.data());
    for (size_t j = 0; j < size; j += 1 + size / 64) {
      std::complex<double> expected = 0;
      for (size_t k = 0; k < size; ++k) {
        const double turn =
            -2 * std::numbers::pi * static_cast<double>(j * k % size) / static_cast<double>(size);
        expected += std::complex<double>(re_before[k], im_before[k]) * std::polar(1.0, turn);
      }
      const size_t place = reversed(j, size);
      EXPECT_LE(std::abs(std::complex<double>(re[place], im[place]) - expected),
                fft.relative_error() * sum + 1e-12);
      EXPECT_EQ(Fft::mirrored(place), reversed((size - j) % size, size)) << size << " " << j;
    }
    fft.inverse(re.data(), im.data());
    for (size_t k = 0; k < size; ++k) {
      EXPECT_NEAR(re[k] / static_cast<double>(size), re_before[k], 1e-14);
      EXPECT_NEAR(im[k] / static_cast<double>(size), im_before[k], 1e-14);
    }
  }
}

}  // namespace
}  // namespace moonshard::accountant
