#include "kernels/coin_rounding/coin_rounding.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "kernels/common/choice.h"
#include "kernels/common/cuda_library.h"
#include "kernels/common/host_threads.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

// Coins of a tile first, for all states: each has bits of its own in the same word.
MS_HOST_VECTORS void round_range(const RawRounding& raw, int64_t begin, int64_t end) {
  constexpr int64_t kTile = 512;
  uint64_t coins[kTile];
  for (int64_t first = begin; first < end; first += kTile) {
    const int64_t count = std::min(kTile, end - first);
    const uint64_t origin = raw.origin + static_cast<uint64_t>(first) * kMixStride;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i)
      coins[i] = mixed_word(origin + static_cast<uint64_t>(i) * kMixStride);
    for (int k = 0; k < raw.states; ++k) {
      const uint32_t* from = raw.from[k] + first;
      uint16_t* to = raw.to[k] + first;
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) to[i] = coin_rounded(from[i], coins[i] >> (16 * k));
    }
  }
}

}  // namespace

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
  constexpr int64_t kPiece = 1 << 16;
  share_pieces((raw.count + kPiece - 1) / kPiece, [&](int64_t piece) {
    round_range(raw, piece * kPiece, std::min(raw.count, (piece + 1) * kPiece));
  });
}

}  // namespace moonshard::kernels
