#include "runtime/models/blocks/dropout.h"

#include "kernels/mixed_words/mixed_words.h"

namespace moonshard::models {

std::optional<kernels::DropoutCoins> dropout_coins(const ParamLayer& layer,
                                                   const at::Tensor& words) {
  if (layer.lora_dropout == 0 || !words.defined()) return std::nullopt;
  return kernels::DropoutCoins{words, kernels::mixed_word(layer.index + kernels::kMixStride),
                               layer.lora_dropout};
}

}  // namespace moonshard::models
