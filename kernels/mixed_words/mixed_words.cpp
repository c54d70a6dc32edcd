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

at::Scalar word_scalar(uint64_t word) {
  return std::bit_cast<int64_t>(word);
}

void mix_words(at::Tensor& x) {
  x.bitwise_xor_(upper_bits(x, 30)).mul_(word_scalar(kMixFirst));
  x.bitwise_xor_(upper_bits(x, 27)).mul_(word_scalar(kMixSecond));
  x.bitwise_xor_(upper_bits(x, 31));
}

}  // namespace moonshard::kernels
