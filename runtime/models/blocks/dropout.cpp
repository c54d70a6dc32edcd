#include "runtime/models/blocks/dropout.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/mixed_words/mixed_words.h"
#include "runtime/base/check.h"

namespace moonshard::models {

using kernels::kMixStride;

namespace {
constexpr int64_t kCoinsOfWord = 4, kSides = 1 << 16;
}  // namespace

at::Tensor dropout_mask(const at::Tensor& x, const ParamLayer& layer, const at::Tensor& words) {
  if (layer.lora_dropout == 0 || !words.defined()) return {};
  const at::NoGradGuard no_grad;
  MS_ASSERT(words.size(0) == x.size(0), "words of {} samples for {} in layer '{}'", words.size(0),
            x.size(0), layer.name);
  const auto signed_word = [](uint64_t word) { return at::Scalar(std::bit_cast<int64_t>(word)); };
  // Each word that is drawn decides over four numbers, by 16 bits each: drawing is what takes time.
  const int64_t numbers = x.numel() / x.size(0);
  at::Tensor coins =
      at::arange((numbers + kCoinsOfWord - 1) / kCoinsOfWord, words.options())
          .mul_(signed_word(kMixStride))
          .unsqueeze(0) +
      (words + signed_word(kernels::mixed_word(layer.index + kMixStride))).unsqueeze(1);
  kernels::mix_words(coins);
  const int64_t dropped = std::max<int64_t>(1, std::lround(layer.lora_dropout * kSides));
  const double kept = 1 - static_cast<double>(dropped) / kSides;
  const at::Tensor stays =
      coins.view(at::kShort).narrow(1, 0, numbers).ge(dropped - kSides / 2);  // of signed numbers
  return at::mul(stays, at::scalar_tensor(1 / kept, at::dtype(x.scalar_type()))).view(x.sizes());
}

}  // namespace moonshard::models
