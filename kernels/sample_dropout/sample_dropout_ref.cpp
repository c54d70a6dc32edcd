#include <algorithm>

#include <ATen/ATen.h>

#include "kernels/mixed_words/mixed_words.h"
#include "kernels/sample_dropout/sample_dropout.h"
#include "kernels/sample_dropout/sample_dropout_launch.h"

namespace moonshard::kernels {

at::Tensor sample_dropout_mask(const at::Tensor& x, const DropoutCoins& coins) {
  const at::NoGradGuard no_grad;
  const int64_t numbers = x.numel() / std::max<int64_t>(1, x.size(0));
  at::Tensor words = at::arange((numbers + kCoinsOfWord - 1) / kCoinsOfWord, coins.words.options())
                         .mul_(word_scalar(kMixStride))
                         .unsqueeze(0) +
                     (coins.words + word_scalar(coins.stream)).unsqueeze(1);
  mix_words(words);
  const at::Tensor stays =
      words.view(at::kShort).narrow(1, 0, numbers).ge(coins.dropped() - kCoinSides / 2);
  return at::mul(stays, at::scalar_tensor(coins.scale(), at::dtype(x.scalar_type())))
      .view(x.sizes());
}

at::Tensor sample_dropout_ref(const at::Tensor& x, const DropoutCoins& coins) {
  return x * sample_dropout_mask(x, coins);
}

void add_sample_dropout_ref(at::Tensor& sum, const at::Tensor& part, const DropoutCoins& coins) {
  sum.add_(part * sample_dropout_mask(part, coins));
}

}  // namespace moonshard::kernels
