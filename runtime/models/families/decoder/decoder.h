// Decoder-only transformers of the Llama and Qwen2 families: RMSNorm, rotary positions,
// grouped-query attention, SwiGLU; a classification head on the last real token, or a
// language-model head. Llama 3, 3.1 and 3.2 and Qwen 1.5 and 2.5 differ in options alone: sizes,
// biases of the q, k and v projections, tied embeddings, scaling of the rotary frequencies. Names
// of parameters are Hugging Face's.
#pragma once

#include "runtime/models/blocks/attention.h"
#include "runtime/models/blocks/positions.h"
#include "runtime/models/model.h"

namespace moonshard::models {

class Decoder : public Model {
 public:
  explicit Decoder(const ModelOptions& options);
  at::Tensor forward(const Batch& batch) override;
  at::Tensor losses(const Batch& batch) override;
  void check(const Batch& batch) const override;

 private:
  struct Block {
    ParamLayer *input_norm, *q, *k, *v, *o, *post_norm, *gate, *up, *down;
  };
  /// The residual stream between two blocks is x + delta: what the last branch adds is added by the
  /// next norm, in one pass with it. delta may be undefined.
  struct Stream {
    at::Tensor x_BTD, delta_BTD;
    at::Tensor sum() const;
  };
  Block add_block(const std::string& prefix);
  Stream run_block(const Block& block, const Stream& stream, const RotaryTable& positions) const;
  at::Tensor attend(const Block& block, const at::Tensor& x_BTD,
                    const RotaryTable& positions) const;
  at::Tensor feed_forward(const Block& block, const at::Tensor& x_BTD) const;

  RotaryOptions rotary_;
  AttentionKind attention_;
  ParamLayer* embed_ = nullptr;
  std::vector<Block> blocks_;
  ParamLayer* final_norm_ = nullptr;
  ParamLayer* head_ = nullptr;
};

}  // namespace moonshard::models
