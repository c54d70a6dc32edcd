// Models that say which token comes next, given a KV cache of the tokens before: what generation
// (runtime/generate) asks of them. Its tensors keep their places.
#pragma once

#include <vector>

#include "runtime/models/blocks/cached_attention.h"

namespace moonshard::models {

/// Of rows of text, all of which have the same number of slots for tokens.
struct KvCache {
  std::vector<LayerCache> layers;
  at::Tensor lengths;  ///< [B] int64 on the model's device: tokens that each row has read
  int64_t slots = 0;

  int64_t bytes() const {
    int64_t total = 0;
    for (const LayerCache& layer : layers)
      total += static_cast<int64_t>(layer.keys.nbytes() + layer.values.nbytes());
    return total;
  }
};

class CausalLm {
 public:
  virtual ~CausalLm() = default;

  /// The longest text that positions are made for; 0: any.
  virtual int64_t longest_text() const = 0;
  virtual KvCache make_cache(int64_t rows, int64_t slots) = 0;
  /// Reads rows from their beginning, whatever the cache held: ids [B, T], padded on the right,
  /// and the number of real tokens of each [B]. Returns the scores of what comes next: [B, V].
  virtual at::Tensor prefill(const at::Tensor& ids, const at::Tensor& counts, KvCache& cache) = 0;
  /// One more token of each row, ids [B]; scores [B, V]. The host waits for nothing, and what
  /// changes changes in place: the pass can be recorded as a CUDA graph.
  virtual at::Tensor decode(const at::Tensor& ids, KvCache& cache) = 0;
};

}  // namespace moonshard::models
