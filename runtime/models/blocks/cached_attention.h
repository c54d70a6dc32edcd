// Attention with a cache of the keys and values of earlier tokens (KV cache), for generation: a
// prompt is read in one pass, then each further token attends to what is kept. The cache has a
// fixed number of slots and lies where it lies, so that a pass of one token can be recorded as a
// CUDA graph: which slot is written and which are seen is told by tensors on the device.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/models/blocks/attention.h"

namespace moonshard::models {

/// Of one layer: [B, Hkv, S, d] each. Slot s of a row holds its token s.
struct LayerCache {
  at::Tensor keys, values;
};

/// What the layers of one kind share in a pass over one token of each row; of prompts, which begin
/// at slot 0, both are undefined.
struct TokenSlots {
  at::Tensor written;  ///< [B Hkv] int64: rows of the cache as [B Hkv S, d]
  at::Tensor hidden;   ///< [B, 1, 1, S] bool: true where the row's token does not see a slot
  at::Tensor bias;     ///< the same for fused attention, 0 and -infinity; undefined where none runs
};

/// True where a token at `positions` [B] does not see a slot, or a token of its row: [B, 1, 1, S].
/// It sees its own and those before it, with a window > 0 the last `window` of them.
at::Tensor hidden_slots(const at::Tensor& positions, int64_t slots, int64_t window);

/// For tokens at `positions` [B] of rows with so many slots, whose activations are `like`.
TokenSlots token_slots(const at::Tensor& positions, int64_t kv_heads, int64_t slots, int64_t window,
                       const at::Tensor& like);

/// q [B, Hq, T, d], k and v [B, Hkv, T, d] -> [B, Hq, T, d]. Prompts (T tokens from slot 0 on) take
/// causal_attention and are kept. One token attends to the cache, in which it is kept first, by
/// products that read keys and values once for all queries of a group, or by LibTorch's fused
/// kernel: whichever is faster for the shape, timed once in a process.
at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            AttentionKind kind, const ScoreRules& rules, LayerCache& cache,
                            const TokenSlots& slots);

}  // namespace moonshard::models
