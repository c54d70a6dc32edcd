#include "runtime/data/source.h"

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/models/batch_check.h"
#include "runtime/models/registry.h"

namespace moonshard::data {

Batch padded(const Batch& batch, int64_t rows) {
  const int64_t more = rows - batch.size();
  MS_CHECK(more >= 0, "data: expected at most {} samples to fill up, got {}", rows, batch.size());
  Batch filled = batch.each([&](const at::Tensor& tensor) {
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape[0] = more;
    return at::cat({tensor, at::zeros(shape, tensor.options())});
  });
  // Attention over no token at all is not a number.
  if (filled.attention_mask.defined()) filled.attention_mask.narrow(0, rows - more, more).fill_(1);
  filled.padding = batch.padding + more;
  const at::Tensor& any = filled.input_ids.defined() ? filled.input_ids : filled.inputs;
  filled.counted = at::ones({rows}, any.options().dtype(at::kFloat));
  filled.counted.narrow(0, filled.samples(), filled.padding).zero_();
  return filled;
}

SyntheticData::SyntheticData(const models::ModelOptions& model, int64_t batch_size,
                             int64_t seq_length, int rank, int world)
    : model_(model),
      batch_size_(batch_size),
      seq_length_(seq_length),
      rank_(static_cast<uint64_t>(rank)),
      world_(static_cast<uint64_t>(world)) {
  MS_CHECK(batch_size > 0, "data.synthetic: expected batch_size > 0, got {}", batch_size);
  MS_CHECK(seq_length > 0, "data.synthetic: expected seq_length > 0, got {}", seq_length);
}

Batch SyntheticData::next() {
  // A key of its own per batch: it depends on (seed, its number) alone.
  const uint64_t key =
      (static_cast<uint64_t>(model_.seed) + 1) * 0x9E3779B97F4A7C15ull + position_ + rank_;
  position_ += world_;
  models::BatchDraws draws(key, resolve_device(model_.device));
  return models::family_of(model_).synthetic_batch(model_, batch_size_, seq_length_, draws);
}

}  // namespace moonshard::data
