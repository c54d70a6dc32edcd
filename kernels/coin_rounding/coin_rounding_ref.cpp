#include <ATen/ATen.h>

#include "kernels/coin_rounding/coin_rounding.h"
#include "kernels/mixed_words/mixed_words.h"

namespace moonshard::kernels {

void round_by_coin_ref(const std::vector<Rounded>& states, const RoundingCoins& coins,
                       int64_t first_element) {
  if (states.empty()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor& any = states.front().to;
  at::Tensor x = at::arange(any.numel(), any.options().dtype(at::kLong));
  x.mul_(word_scalar(kMixStride)).add_(word_scalar(coin_origin(coins, first_element)));
  mix_words(x);
  for (size_t k = 0; k < states.size(); ++k) {
    const at::Tensor from = states[k].from.to(at::kFloat).contiguous().view({-1});
    const at::Tensor coin =
        x.bitwise_right_shift(static_cast<int64_t>(16 * k)).bitwise_and_(0xFFFF);
    at::Tensor upper = from.view(at::kInt).to(at::kLong).add_(coin).bitwise_right_shift_(16);
    upper = upper.masked_fill_(from.isnan(), 0x7FC0);
    states[k].to.view({-1}).view(at::kShort).copy_(upper.to(at::kShort));
  }
}

}  // namespace moonshard::kernels
