#include "runtime/data/synthetic.h"

#include <tuple>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/core/device.h"
#include "runtime/data/diffusion.h"

namespace moonshard::data {

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
  // A generator of its own per batch: it depends on (seed, its number) alone. Drawn on the host, so
  // that it is the same on every device.
  const uint64_t mixed =
      (static_cast<uint64_t>(model_.seed) + 1) * 0x9E3779B97F4A7C15ull + position_ + rank_;
  position_ += world_;
  at::Generator generator = at::detail::createCPUGenerator(mixed);
  const c10::Device device = resolve_device(model_.device);
  const auto ids = [&](int64_t high, at::IntArrayRef shape) {
    return at::randint(0, high, shape, generator, at::TensorOptions().dtype(at::kLong)).to(device);
  };
  // Large: drawn where they are used, from the counter, which gives the same there as anywhere.
  const auto two_of = [&](std::vector<int64_t> shape, at::ScalarType type) {
    shape.insert(shape.begin(), 2);
    at::Tensor normals = at::zeros(shape, at::TensorOptions().dtype(type).device(device));
    kernels::add_counter_noise(normals, 1.0, {mixed, 0, kernels::kPurposeData});
    return std::pair(normals[0], normals[1]);
  };
  const auto type = dtype_from_name(model_.dtype);
  Batch batch;
  if (model_.task == "regress") {
    std::tie(batch.inputs, batch.targets) = two_of({batch_size_, model_.hidden_dim}, type);
    return batch;
  }
  if (model_.task == "denoise") {
    // Images stay in float32 or wider: the model casts what it computes with, and small timesteps
    // change an image by less than bfloat16 can tell.
    const int64_t side = model_.image_size;
    const auto [images, noise] = two_of({batch_size_, model_.in_channels, side, side},
                                        type == at::kDouble ? at::kDouble : at::kFloat);
    batch.timesteps = ids(kDiffusionSteps, {batch_size_});
    batch.labels = ids(model_.num_classes, {batch_size_});
    batch.inputs = add_diffusion_noise(images, noise, batch.timesteps);
    batch.targets = noise;
    return batch;
  }
  batch.input_ids = ids(model_.vocab_size, {batch_size_, seq_length_});
  batch.attention_mask =
      at::ones({batch_size_, seq_length_}, at::TensorOptions().dtype(at::kBool).device(device));
  if (model_.task == "classify") {
    batch.labels = ids(model_.num_labels, {batch_size_});
  } else {
    // Next-token labels: shifted left, the last position has none.
    batch.labels = at::full_like(batch.input_ids, -100);
    batch.labels.slice(1, 0, seq_length_ - 1).copy_(batch.input_ids.slice(1, 1));
  }
  return batch;
}

}  // namespace moonshard::data
