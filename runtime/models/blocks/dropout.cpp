#include "runtime/models/blocks/dropout.h"

#include <ATen/ATen.h>

#include <bit>

#include "kernels/mixed_words/mixed_words.h"
#include "runtime/base/check.h"

namespace moonshard::models {

using kernels::kMixStride;

at::Tensor dropout_mask(const at::Tensor& x, const ParamLayer& layer, const at::Tensor& words) {
  if (layer.lora_dropout == 0 || !words.defined()) return {};
  const at::NoGradGuard no_grad;
  MS_ASSERT(words.size(0) == x.size(0), "words of {} samples for {} in layer '{}'", words.size(0),
            x.size(0), layer.name);
  const auto signed_word = [](uint64_t word) { return at::Scalar(std::bit_cast<int64_t>(word)); };
  at::Tensor coins =
      at::arange(x.numel() / x.size(0), words.options())
          .mul_(signed_word(kMixStride))
          .unsqueeze(0) +
      (words + signed_word(kernels::mixed_word(layer.index + kMixStride))).unsqueeze(1);
  kernels::mix_words(coins);
  constexpr int64_t kBits = 24;
  const auto limit = static_cast<int64_t>(layer.lora_dropout * static_cast<double>(1 << kBits));
  const at::Tensor mask = kernels::upper_bits(coins, 64 - kBits)
                              .ge(limit)
                              .to(x.scalar_type())
                              .div_(1 - layer.lora_dropout);
  return mask.view(x.sizes());
}

}  // namespace moonshard::models
