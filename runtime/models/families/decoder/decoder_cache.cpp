// How a decoder reads text for generation: the blocks of forward over a KV cache of earlier tokens.
#include <cmath>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/models/families/decoder/decoder.h"

namespace moonshard::models {

int64_t stretched_context(const ModelOptions& o) {
  if (o.rope_scaling != "llama3") return 0;
  return std::llround(static_cast<double>(o.rope_original_length) * o.rope_factor);
}

KvCache Decoder::make_cache(int64_t rows, int64_t slots) {
  MS_CHECK(options_.task == "lm",
           "model '{}': expected task lm, whose head scores tokens, got {}; build the model with "
           "task = \"lm\"",
           options_.model, options_.task);
  const auto kind = at::TensorOptions().device(resolve_device(options_.device));
  KvCache cache;
  cache.slots = slots;
  cache.lengths = at::zeros({rows}, kind.dtype(at::kLong));
  for (const Block& block : blocks_) {
    // Zeros: a slot that is not seen counts 0 times, which must not meet a number that is none.
    const auto make = [&] {
      return at::zeros({rows, options_.num_kv_heads, slots, options_.head_dim},
                       kind.dtype(block.k->compute_type()));
    };
    cache.layers.push_back({make(), make()});
  }
  return cache;
}

Decoder::Surroundings Decoder::surroundings_of_tokens(bool local, const at::Tensor& x_B1D,
                                                      const KvCache& cache) {
  const auto& o = options_;
  Surroundings around;
  around.positions = positions_of(cache.lengths, local, x_B1D);
  around.scores.softcap = std::max(o.attention_softcap, 0.0);
  around.slots = token_slots(cache.lengths, o.num_kv_heads, cache.slots,
                             local ? std::max<int64_t>(o.attention_window, 0) : 0, x_B1D);
  return around;
}

at::Tensor Decoder::scores_with_cache(Stream stream, const std::vector<Surroundings>& around,
                                      KvCache& cache, const at::Tensor& last) {
  for (size_t i = 0; i < blocks_.size(); ++i)
    stream = run_block(blocks_[i], stream, around[i], &cache.layers[i]);
  const at::Tensor x_BTD = normed_output(stream);
  if (!last.defined()) return token_scores(x_BTD.squeeze(1));
  // Scores of all tokens of the prompts would take far more memory than the rest.
  return token_scores(x_BTD.index({at::arange(last.size(0), last.options()), last}));
}

at::Tensor Decoder::prefill(const at::Tensor& ids, const at::Tensor& counts, KvCache& cache) {
  MS_CHECK(ids.size(1) <= cache.slots, "model '{}': expected prompts of at most {} tokens, got {}",
           options_.model, cache.slots, ids.size(1));
  Stream stream{embed(ids), {}};
  const std::vector<Surroundings> around = around_blocks(
      stream.x_BTD,
      [this](bool local, const at::Tensor& like) { return surroundings(local, like); });
  // Padding is on the right and attention is causal: no real token sees it, and what it leaves in
  // the cache is overwritten before it is seen.
  const at::Tensor scores = scores_with_cache(stream, around, cache, counts - 1);
  cache.lengths.copy_(counts);
  return scores;
}

at::Tensor Decoder::decode(const at::Tensor& ids, KvCache& cache) {
  const Stream stream{embed(ids.unsqueeze(1)), {}};
  const std::vector<Surroundings> around =
      around_blocks(stream.x_BTD, [&](bool local, const at::Tensor& like) {
        return surroundings_of_tokens(local, like, cache);
      });
  const at::Tensor scores = scores_with_cache(stream, around, cache, {});
  cache.lengths.add_(1);
  return scores;
}

}  // namespace moonshard::models
