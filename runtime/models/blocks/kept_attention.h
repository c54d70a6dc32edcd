// Attention inside of a block that backward runs again (checkpoint.h): its output is kept, so that
// the second run does not compute it. In long contexts that is most of a block's forward pass, for
// as much memory as the block's input.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/models/blocks/attention.h"

namespace moonshard::models {

/// What backward needs of one attention beside q, k and v.
struct AttentionResult {
  at::Tensor out, log_sums, seed, offset, first_q, first_k;
  int64_t most_q = 0, most_k = 0;
};

/// The results of one block, in the order of its attentions.
class KeptAttention {
 public:
  /// While it lives, attention on this thread records into the results, or takes them from there.
  class Scope {
   public:
    Scope(KeptAttention& results, bool records);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend at::Tensor kept_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool,
                                     int64_t);
    KeptAttention& results_;
    bool records_;
    size_t next_ = 0;
    Scope* outer_;
  };

 private:
  friend at::Tensor kept_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool,
                                   int64_t);
  std::vector<AttentionResult> results_;
};

/// Whether a scope is there, and kernels that give such results take these tensors.
bool keeps_attention(const at::Tensor& q, const at::Tensor& k);
/// Fused attention in a scope. q [B, Hq, T, d], k and v [B, Hkv, T, d]; a window (0: none) is for
/// tensors with has_flash_kernel.
at::Tensor kept_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          bool causal, int64_t window);

}  // namespace moonshard::models
