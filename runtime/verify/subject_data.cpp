#include "runtime/verify/subject_data.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/models/registry.h"

namespace moonshard::verify {
namespace {

class BatchDataset : public data::Dataset {
 public:
  explicit BatchDataset(const Batch& batch)
      : batch_(batch.each([](const at::Tensor& tensor) { return tensor.cpu(); })) {}
  int64_t size() const override { return batch_.size(); }
  Batch batch(const std::vector<int64_t>& examples) const override {
    return chosen_samples(batch_, examples);
  }
  Json facts() const override { return nullptr; }

 private:
  Batch batch_;
};

}  // namespace

void move_off_zero(models::Model& model) {
  for (const auto& parameter : model.parameters()) {
    kernels::add_counter_noise(parameter->value, 0.05, {99, 7, parameter->index});
  }
}

Batch make_batch(const models::Model& model, const Variant& variant) {
  data::SyntheticData source(model.options(), variant.batch_size, variant.seq_length);
  Batch batch = source.next();
  if (!batch.input_ids.defined()) return batch;
  // Few different ids, so that most of them repeat within a sample. 0 is the padding id.
  batch.input_ids = batch.input_ids.remainder(5) + 1;
  const bool is_lm = batch.labels.dim() == 2;  // a label per token
  if (is_lm) {
    batch.labels = at::full_like(batch.input_ids, -100);
    const int64_t last = variant.seq_length - 1;
    batch.labels.narrow(1, 0, last).copy_(batch.input_ids.narrow(1, 1, last));
  }
  if (!variant.padded) return batch;
  for (int64_t b = 0; b < batch.size(); ++b) {
    const int64_t length = variant.seq_length - b % 4;
    batch.attention_mask[b].slice(0, length).fill_(false);
    batch.input_ids[b].slice(0, length).fill_(0);
    if (is_lm) batch.labels[b].slice(0, length - 1).fill_(-100);
    // And once in the middle: the row takes no part wherever the id stands.
    batch.input_ids[b][1] = 0;
  }
  return batch;
}

Batch make_difficult_batch(const models::Model& model, const Variant& variant) {
  Variant more = variant;
  const bool has_tokens = models::find_preset(model.options().model).family->takes("vocab_size");
  more.batch_size = has_tokens ? 4 : 8;
  Batch batch = make_batch(model, more).each([](const at::Tensor& tensor) {
    at::Tensor own = tensor.clone();
    own[1].copy_(own[0]);
    return own;
  });
  if (batch.input_ids.defined()) {
    batch.input_ids[2].fill_(3);
    return batch;
  }
  // In float32 the square of the second overflows, and so does the loss of the third.
  const double scales[] = {1e10, 1e30, 1e-30};
  for (int64_t i = 0; i < 3; ++i) {
    batch.inputs[2 + i].mul_(scales[i]);
    batch.targets[2 + i].mul_(scales[i]);
  }
  batch.targets[5].fill_(std::nan(""));
  batch.inputs[6].fill_(std::numeric_limits<double>::infinity());
  return batch;
}

Batch chosen_samples(const Batch& batch, const std::vector<int64_t>& samples) {
  return batch.each([&](const at::Tensor& tensor) {
    return tensor.index_select(0, at::tensor(samples, at::kLong).to(tensor.device()));
  });
}

std::shared_ptr<data::Dataset> as_dataset(const Batch& batch) {
  return std::make_shared<BatchDataset>(batch);
}

}  // namespace moonshard::verify
