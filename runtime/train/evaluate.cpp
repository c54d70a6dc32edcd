#include "runtime/train/evaluate.h"

#include <numeric>

#include <ATen/ATen.h>

#include "kernels/cross_entropy/cross_entropy.h"
#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/core/device.h"
#include "runtime/models/blocks/losses.h"
#include "runtime/profile/ledger.h"
#include "runtime/train/forward_only.h"

namespace moonshard::train {
namespace {

// Results of all samples as rows of one table, so that ranks can add theirs up: each sample is in
// one rank's table, and 0 in the others'.
enum ResultRow : int64_t { kLoss, kTokens, kLabel, kPredicted, kNumRows };

bool is_classifier(const models::Model& model) {
  return model.options().task == "classify";
}

// [kNumRows, B], double, on the host.
at::Tensor results_of(models::Model& model, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const profile::OwnerScope owner(profile::Owner::Activations);
  const bool is_lm = model.options().task == "lm";
  at::Tensor losses, predicted;
  if (is_classifier(model)) {
    const at::Tensor scores = model.forward(batch);
    losses = models::classification_losses(scores, batch.labels);
    predicted = scores.argmax(-1);
  } else {
    losses = model.losses(batch);
  }
  at::Tensor rows = at::zeros({kNumRows, batch.size()}, at::kDouble);
  rows[kLoss].copy_(losses);
  if (is_lm) rows[kTokens].copy_(batch.labels.ne(kernels::kIgnoredLabel).sum(-1));
  if (predicted.defined()) {
    rows[kLabel].copy_(batch.labels);
    rows[kPredicted].copy_(predicted);
  }
  return rows;
}

analysis::EvaluatedSamples listed(const models::Model& model, const at::Tensor& table) {
  const int64_t samples = table.size(1);
  const auto row = [&](int64_t index) {
    const double* first = table[index].const_data_ptr<double>();
    return std::vector<double>(first, first + samples);
  };
  const auto whole = [&](int64_t index) {
    std::vector<int64_t> numbers;
    for (const double number : row(index)) numbers.push_back(static_cast<int64_t>(number));
    return numbers;
  };
  analysis::EvaluatedSamples list;
  list.losses = row(kLoss);
  if (model.options().task == "lm") list.tokens = row(kTokens);
  if (!is_classifier(model)) return list;
  list.labels = whole(kLabel);
  list.predicted = whole(kPredicted);
  list.num_labels = model.options().num_labels;
  return list;
}

int64_t num_samples(const EvaluationData& data) {
  const int64_t samples = std::accumulate(data.sizes.begin(), data.sizes.end(), int64_t{0});
  MS_CHECK(samples > 0, "evaluate: expected at least one sample, got none");
  return samples;
}

Batch placed(const models::Model& model, const Batch& batch) {
  const c10::Device device = resolve_device(model.options().device);
  const Batch moved = batch.each([&](const at::Tensor& tensor) { return tensor.to(device); });
  model.check(moved);
  return moved;
}

// Ranks that were given different data would add up samples that do not belong together.
void compare_sizes(const Trainer& trainer, const EvaluationData& data) {
  if (trainer.world().size() == 1) return;
  const at::Tensor own =
      at::tensor({num_samples(data), static_cast<int64_t>(data.sizes.size())}, at::kLong);
  const at::Tensor all = trainer.of_all_ranks(own);
  for (int64_t rank = 1; rank < all.size(0); ++rank)
    MS_CHECK(
        all[rank].equal(all[0]),
        "evaluate: expected the same data on all ranks, got {} samples in {} batches on rank 0 "
        "and {} in {} on rank {}",
        all[0][0].item<int64_t>(), all[0][1].item<int64_t>(), all[rank][0].item<int64_t>(),
        all[rank][1].item<int64_t>(), rank);
}

}  // namespace

EvaluationData batches_of(const data::Dataset& dataset, int64_t batch_size) {
  MS_CHECK(batch_size > 0, "evaluate: option 'batch_size': expected at least 1, got {}",
           batch_size);
  EvaluationData data;
  for (int64_t first = 0; first < dataset.size(); first += batch_size)
    data.sizes.push_back(std::min(batch_size, dataset.size() - first));
  data.batch = [&dataset, batch_size, sizes = data.sizes](size_t index) {
    std::vector<int64_t> examples(static_cast<size_t>(sizes[index]));
    std::iota(examples.begin(), examples.end(), static_cast<int64_t>(index) * batch_size);
    return dataset.batch(examples);
  };
  return data;
}

EvaluationData batches_of(std::vector<Batch> batches) {
  EvaluationData data;
  for (const Batch& batch : batches) data.sizes.push_back(batch.size());
  data.batch = [held = std::move(batches)](size_t index) { return held[index]; };
  return data;
}

analysis::EvaluatedSamples evaluate(models::Model& model, const EvaluationData& data) {
  at::Tensor table = at::zeros({kNumRows, num_samples(data)}, at::kDouble);
  int64_t first = 0;
  for (size_t i = 0; i < data.sizes.size(); ++i) {
    throw_if_interrupted();
    table.narrow(1, first, data.sizes[i]).copy_(results_of(model, placed(model, data.batch(i))));
    first += data.sizes[i];
  }
  return listed(model, table);
}

analysis::EvaluatedSamples evaluate(Trainer& trainer, const EvaluationData& data) {
  const comm::World& world = trainer.world();
  MS_CHECK(
      trainer.half_done().empty(),
      "evaluate: expected whole weights, got those of a {} that failed on its way; resume from "
      "a good checkpoint first",
      trainer.half_done());
  MS_CHECK(!world.is_fake(),
           "evaluate: expected ranks that compute, got a world that models the others; evaluate "
           "with world = real");
  compare_sizes(trainer, data);
  at::Tensor table = at::zeros({kNumRows, num_samples(data)}, at::kDouble);
  std::vector<int64_t> begins(data.sizes.size() + 1, 0);
  std::partial_sum(data.sizes.begin(), data.sizes.end(), begins.begin() + 1);
  const auto ranks = static_cast<size_t>(world.size());
  for (size_t turn = 0; turn < data.sizes.size(); turn += ranks) {
    throw_if_interrupted();
    const size_t own = turn + static_cast<size_t>(world.rank());
    // Without a batch of its own a rank still joins the collectives; its result is not counted.
    const bool counts = own < data.sizes.size();
    const size_t taken = counts ? own : turn;
    const Batch batch = placed(trainer.model(), data.batch(taken));
    at::Tensor results;
    {
      const ForwardOnly pass(trainer.parallel());
      results = results_of(trainer.model(), batch);
    }
    if (counts) table.narrow(1, begins[own], data.sizes[own]).copy_(results);
  }
  if (world.size() > 1)
    trainer.world().group("statistics", c10::kCPU)->all_reduce(table, "evaluation").wait();
  return listed(trainer.model(), table);
}

}  // namespace moonshard::train
