// Llama 3: RMSNorm, rotary positions, grouped-query attention, SwiGLU; a classification head on the
// last real token, or a language-model head. Names of parameters are Hugging Face's.
#pragma once

#include "runtime/models/model.h"

namespace moonshard::models {

class Llama : public Model {
 public:
  explicit Llama(const ModelOptions& options);
  at::Tensor forward(const Batch& batch) override;
  at::Tensor losses(const Batch& batch) override;

 private:
  struct Block {
    ParamLayer *input_norm, *q, *k, *v, *o, *post_norm, *gate, *up, *down;
  };
  at::Tensor attend(const Block& block, const at::Tensor& x_BTD) const;
  at::Tensor feed_forward(const Block& block, const at::Tensor& x_BTD) const;

  int64_t head_dim_ = 0;
  ParamLayer* embed_ = nullptr;
  std::vector<Block> blocks_;
  ParamLayer* final_norm_ = nullptr;
  ParamLayer* head_ = nullptr;
};

}  // namespace moonshard::models
