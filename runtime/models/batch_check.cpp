#include "runtime/models/batch_check.h"

#include <ATen/ATen.h>

#include "runtime/base/check.h"

namespace moonshard::models {

void BatchCheck::expect(const at::Tensor& tensor, const char* name, int64_t dims,
                        const char* shape) const {
  MS_CHECK(tensor.defined() && tensor.dim() == dims && tensor.size(0) == batch_.size(),
           "model '{}': batch field '{}': expected {} with {} samples, got {}", options_.model,
           name, shape, batch_.size(),
           tensor.defined() ? c10::str(tensor.sizes()) : std::string("nothing"));
}

void BatchCheck::expect_range(const at::Tensor& tensor, const char* name, int64_t low, int64_t high,
                              bool ignored_allowed, const char* advice) const {
  if (!tensor.is_cpu() || tensor.numel() == 0) return;
  at::Tensor bad = tensor.lt(low).logical_or(tensor.gt(high));
  if (ignored_allowed) bad = bad.logical_and(tensor.ne(-100));
  if (!bad.any().item<bool>()) return;
  throw UsageError(fmt::format("model '{}': batch field '{}': expected {} to {}{}, got {}; {}",
                               options_.model, name, low, high,
                               ignored_allowed ? " or -100 (ignored)" : "",
                               tensor.masked_select(bad)[0].item<int64_t>(), advice));
}

void BatchCheck::expect_like_inputs(const at::Tensor& targets) const {
  MS_CHECK(targets.defined() && targets.sizes() == batch_.inputs.sizes(),
           "model '{}': batch field 'targets': expected the shape {} of inputs, got {}",
           options_.model, c10::str(batch_.inputs.sizes()),
           targets.defined() ? c10::str(targets.sizes()) : std::string("nothing"));
}

void BatchCheck::expect_like_ids(const at::Tensor& tensor, const char* name) const {
  MS_CHECK(tensor.sizes() == batch_.input_ids.sizes(),
           "model '{}': batch field '{}': expected the shape {} of input_ids, got {}",
           options_.model, name, c10::str(batch_.input_ids.sizes()), c10::str(tensor.sizes()));
}

}  // namespace moonshard::models
