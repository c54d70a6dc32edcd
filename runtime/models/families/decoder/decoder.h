// Decoder-only transformers of the Llama, Qwen2 and Gemma families: RMSNorm, rotary positions,
// grouped-query attention, a gated MLP; a classification head on the last real token, or a
// language-model head. Llama 3, 3.1 and 3.2 and Qwen 1.5 and 2.5 differ in options alone: sizes,
// biases of the q, k and v projections, tied embeddings, scaling of the rotary frequencies. Gemma
// 2 and 3 and VaultGemma have blocks of their own style (BlockParts), soft caps, and local layers
// with a window. Names of parameters are Hugging Face's.
#pragma once

#include <functional>
#include <optional>

#include "runtime/models/blocks/attention.h"
#include "runtime/models/blocks/norms.h"
#include "runtime/models/blocks/positions.h"
#include "runtime/models/causal_lm.h"
#include "runtime/models/model.h"

namespace moonshard::models {

/// What a block of each block_style is made of, and what goes with it.
struct BlockParts {
  bool gemma = false;  ///< norms by 1 + weight, GeGLU, embeddings times the root of their width
  bool post_norms = false;  ///< norms behind attention and MLP, before the residual additions
  bool qk_norms = false;    ///< norms of each query's and key's head
};
BlockParts block_parts(const std::string& block_style);

/// Whether a layer sees attention_window tokens only, and positions turn by rope_local_base.
bool is_local_layer(const ModelOptions& options, int64_t layer);

/// Of local layers, or of the others.
RotaryOptions rotary_options(const ModelOptions& options, bool local);

/// The context of the pre-training times the stretch of positions; 0 where they are not stretched,
/// and nothing says how long a text may be.
int64_t stretched_context(const ModelOptions& options);

class Decoder : public Model, public CausalLm {
 public:
  explicit Decoder(const ModelOptions& options);
  at::Tensor forward(const Batch& batch) override;
  at::Tensor losses(const Batch& batch) override;
  void check(const Batch& batch) const override;

  int64_t longest_text() const override { return stretched_context(options_); }
  KvCache make_cache(int64_t rows, int64_t slots) override;
  at::Tensor prefill(const at::Tensor& ids, const at::Tensor& counts, KvCache& cache) override;
  at::Tensor decode(const at::Tensor& ids, KvCache& cache) override;

 private:
  struct Block {
    ParamLayer *input_norm, *q, *k, *v, *o, *mlp_norm, *gate, *up, *down;
    ParamLayer *q_norm, *k_norm, *post_attention_norm, *post_mlp_norm;  ///< null where it has none
  };
  /// Of a classifier's last block, which runs for one token of each sample behind its keys and
  /// values: the one that is scored.
  struct ScoredTokens {
    at::Tensor places_B;     ///< in [B, T] as one row
    RotaryTable positions;   ///< of these tokens
    at::Tensor hidden_B11T;  ///< true where a token's query does not see a key
    /// x [B, T, D] -> [B, 1, D]
    at::Tensor of(const at::Tensor& x_BTD) const;
  };
  /// What layers of one kind, local or global, share.
  struct Surroundings {
    RotaryTable positions;
    ScoreRules scores;
    TokenSlots slots = {};                    ///< in generation, of a token of each row
    std::optional<ScoredTokens> scored = {};  ///< of a classifier's last block
  };
  /// The residual stream between two blocks is x + delta: what the last branch adds is added by the
  /// next norm, in one pass with it. delta may be undefined.
  struct Stream {
    at::Tensor x_BTD, delta_BTD;
    at::Tensor sum() const;
    /// Where a block of another dtype begins: the sum, cast; else as it is.
    Stream in_type(at::ScalarType type) const;
  };
  Block add_block(const std::string& prefix);
  /// Tells its layers, and the norm behind it, that they have one position.
  void run_for_scored(const Block& block);
  ParamLayer* add_norm(const std::string& name, int64_t width);
  at::Tensor embed(const at::Tensor& ids);
  Surroundings surroundings(bool local, const at::Tensor& x_BTD);
  /// The same for one token of each row, behind those that the cache holds.
  Surroundings surroundings_of_tokens(bool local, const at::Tensor& x_B1D, const KvCache& cache);
  /// Of one token of each row, at these positions [B].
  RotaryTable positions_of(const at::Tensor& tokens_B, bool local, const at::Tensor& like);
  /// By block, as `make` gives them for local or other layers in the block's dtype; x is the stream
  /// before the first. Blocks alike share one.
  using MakeSurroundings = std::function<Surroundings(bool local, const at::Tensor& like)>;
  std::vector<Surroundings> around_blocks(const at::Tensor& x_BTD,
                                          const MakeSurroundings& make) const;
  /// In generation: all blocks over a cache, the last norm and the head; `last` picks the rows
  /// that scores are wanted of: [B], or undefined for texts of one token.
  at::Tensor scores_with_cache(Stream stream, const std::vector<Surroundings>& around,
                               KvCache& cache, const at::Tensor& last);
  /// The last norm of the stream behind the blocks.
  at::Tensor normed_output(const Stream& stream) const;
  static at::Tensor last_tokens(const Batch& batch);
  ScoredTokens scored_tokens(const at::Tensor& last_B, const at::Tensor& x_BTD);
  /// What the head reads: of every token (lm) [B, T, D], of each sample's last one [B, D].
  at::Tensor head_input(const Batch& batch);
  at::Tensor token_scores(const at::Tensor& x);
  Stream run_block(const Block& block, const Stream& stream, const Surroundings& around,
                   LayerCache* cache = nullptr) const;
  /// `cache`: in generation, this layer's.
  at::Tensor attend(const Block& block, const at::Tensor& x_BTD, const Surroundings& around,
                    LayerCache* cache) const;
  /// Turned by the positions of their tokens, [B, H, T, d].
  struct Heads {
    at::Tensor q, k, v;
  };
  Heads all_heads(const Block& block, const at::Tensor& x_BTD, const Surroundings& around) const;
  /// With queries of the scored tokens alone.
  Heads scored_heads(const Block& block, const at::Tensor& x_BTD, const Surroundings& around) const;
  at::Tensor feed_forward(const Block& block, const at::Tensor& x_BTD) const;
  /// The norm behind a branch; the branch itself where the block has none.
  at::Tensor behind(const at::Tensor& branch_BTD, ParamLayer* norm) const;
  at::Tensor in_heads(const at::Tensor& x_BTD, int64_t heads) const;
  at::Tensor normed_heads(const at::Tensor& x_BTD, ParamLayer* norm, int64_t heads) const;

  BlockParts parts_;
  NormScale norm_scale_;
  AttentionKind attention_;
  ParamLayer* embed_ = nullptr;
  std::vector<Block> blocks_;
  ParamLayer* final_norm_ = nullptr;
  ParamLayer* head_ = nullptr;
};

}  // namespace moonshard::models
