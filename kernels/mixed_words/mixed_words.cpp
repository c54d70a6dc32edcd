#include "kernels/mixed_words/mixed_words.h"

#include <ATen/ATen.h>

#include <bit>

namespace moonshard::kernels {
namespace {

// Upper 64 - `by` bits of each, as if it were unsigned.
at::Tensor upper_bits(const at::Tensor& x, int64_t by) {
  // A shift of signed numbers brings copies of the sign in, which are cut off.
  return x.bitwise_right_shift(by).bitwise_and_((int64_t{1} << (64 - by)) - 1);
}

}  // namespace

void mix_words(at::Tensor& x) {
  const auto constant = [](uint64_t word) { return at::Scalar(std::bit_cast<int64_t>(word)); };
  x.bitwise_xor_(upper_bits(x, 30)).mul_(constant(kMixFirst));
  x.bitwise_xor_(upper_bits(x, 27)).mul_(constant(kMixSecond));
  x.bitwise_xor_(upper_bits(x, 31));
}

}  // namespace moonshard::kernels
