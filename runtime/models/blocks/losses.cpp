#include "runtime/models/blocks/losses.h"

#include <ATen/ATen.h>

namespace moonshard::models {
namespace {

constexpr int64_t kIgnoredLabel = -100;

at::Tensor at_least_float(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

}  // namespace

at::Tensor classification_losses(const at::Tensor& scores, const at::Tensor& labels) {
  return at::cross_entropy_loss(at_least_float(scores), labels, {}, at::Reduction::None);
}

at::Tensor token_losses(const at::Tensor& scores, const at::Tensor& labels) {
  const at::Tensor flat =
      at::cross_entropy_loss(at_least_float(scores).flatten(0, 1), labels.flatten(), {},
                             at::Reduction::None, kIgnoredLabel)
          .view_as(labels);
  const at::Tensor counted = labels.ne(kIgnoredLabel).sum(-1).clamp_min(1);
  return flat.sum(-1) / counted;
}

at::Tensor regression_losses(const at::Tensor& outputs, const at::Tensor& targets) {
  return (at_least_float(outputs) - at_least_float(targets)).square().flatten(1).mean(-1);
}

}  // namespace moonshard::models
