#include "kernels/coin_rounding/coin_rounding.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/common/choice.h"
#include "kernels/common/cuda_library.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {

uint64_t coin_origin(const RoundingCoins& coins, int64_t first_element) {
  const uint64_t start = mixed_word(
      mixed_word(mixed_word(coins.key + kMixStride) + coins.step * kMixStride) + coins.parameter);
  return start + static_cast<uint64_t>(first_element) * kMixStride;
}

void round_by_coin(const std::vector<Rounded>& states, const RoundingCoins& coins,
                   int64_t first_element) {
  if (states.empty()) return;
  MS_ASSERT(states.size() <= RawRounding::kMostStates, "{} states with 64 bits of coins",
            states.size());
  for (const Rounded& state : states)
    MS_ASSERT(state.to.scalar_type() == at::kBFloat16 && state.to.is_contiguous() &&
                  state.to.numel() == state.from.numel() &&
                  state.to.numel() == states.front().to.numel(),
              "a state of {} {} is rounded to {} {}", state.from.numel(),
              c10::toString(state.from.scalar_type()), state.to.numel(),
              c10::toString(state.to.scalar_type()));
  const at::Tensor& any = states.front().to;
  const bool by_kernel = kernel_runs("coin_rounding", any);
  if (!any.is_cpu() && !by_kernel) return round_by_coin_ref(states, coins, first_element);
  RawRounding raw;
  raw.states = static_cast<int>(states.size());
  raw.count = any.numel();
  raw.origin = coin_origin(coins, first_element);
  std::vector<at::Tensor> wide;
  for (size_t k = 0; k < states.size(); ++k) {
    wide.push_back(states[k].from.to(at::kFloat).contiguous());
    raw.from[k] = static_cast<const uint32_t*>(wide[k].const_data_ptr());
    raw.to[k] = static_cast<uint16_t*>(states[k].to.mutable_data_ptr());
  }
  if (raw.count == 0) return;
  if (by_kernel) {
    cuda().launch_coin_rounding(raw, stream_of(any));
    return;
  }
  at::parallel_for(0, raw.count, /*grain_size=*/1 << 15, [&](int64_t begin, int64_t end) {
    for (int k = 0; k < raw.states; ++k)
      for (int64_t i = begin; i < end; ++i)
        raw.to[k][i] = coin_rounded(
            raw.from[k][i],
            mixed_word(raw.origin + static_cast<uint64_t>(i) * kMixStride) >> (16 * k));
  });
}

}  // namespace moonshard::kernels
