// Forward and backward of a step's micro-batches, up to the clipped sums of this rank.
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "runtime/core/device.h"
#include "runtime/sharding/settle_rows.h"
#include "runtime/train/step_finish.h"
#include "runtime/train/trainer.h"

namespace moonshard::train {
void Trainer::run_micro_batches(const std::vector<Batch>& micro_batches, profile::PhaseTimer& timer,
                                StepProgress& progress) {
  if (finish_->updates_early()) update_early(timer, progress);
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const Batch& batch = micro_batches[i];
    // An empty batch has nothing to learn from and nothing to clip. Where other ranks have samples,
    // this rank must still join the collectives, with a row that counts nowhere.
    const bool is_empty = batch.size() == 0;
    if (is_empty && parts_.world->size() == 1) continue;
    pass_micro_batch(is_empty ? data::padded(batch, 1)
                              : model().prepare(batch, model_draws_, step_, first_sample(progress)),
                     i, micro_batches.size(), timer, progress);
    progress.samples += batch.samples();
  }
}

// What a model draws for a sample depends on its place: this rank's next one among all ranks'.
int64_t Trainer::first_sample(const StepProgress& progress) {
  if (!model().draws_by_position()) return progress.samples;
  return progress.samples + statistics_.counts().before(parts_.world->rank());
}

void Trainer::pass_micro_batch(const Batch& batch, size_t index, size_t count,
                               profile::PhaseTimer& timer, StepProgress& progress) {
  progress.is_last = index + 1 == count;
  parallel_->begin_micro_batch(progress.is_last);
  run_micro_batch(batch, engine_view(batch, index, count), timer, progress);
  parallel_->end_micro_batch();
  if (progress.is_last) return;
  // A later one brings rows of its own.
  for (const auto& parameter : model().parameters()) sharding::settle_rows(*parameter);
}

// No gradient observer: each unit is updated as soon as its sum is complete, and the model's
// gradients never exist all at once.
void Trainer::update_early(profile::PhaseTimer& timer, StepProgress& progress) {
  if (gradient_observer_) return;
  parallel_->on_complete([&](const std::string& unit, const std::vector<size_t>& parts) {
    progress.update->apply(unit, parts, timer);
  });
}

privacy::MicroBatch Trainer::engine_view(const Batch& batch, size_t index, size_t count) {
  const RankCounts& counts = statistics_.counts();
  privacy::MicroBatch micro;
  micro.samples = batch.size();
  micro.tokens_per_sample = model().count_tokens(batch) / batch.size();
  micro.index = static_cast<int64_t>(index);
  micro.count = static_cast<int64_t>(count);
  micro.record_layers = record_layers_;
  micro.most_samples = counts.most_samples;
  micro.most_tokens_per_sample = counts.most_tokens_per_sample;
  micro.counted = batch.counted;
  micro.rank = parts_.world->rank();
  micro.ranks = parts_.world->size();
  micro.needs_sums = micro.ranks > 1 || index + 1 < count || parallel_->works_beside();
  micro.takes_other_plan = counts.takes_other_plan;
  return micro;
}

void Trainer::run_micro_batch(const Batch& batch, const privacy::MicroBatch& micro,
                              profile::PhaseTimer& timer, StepProgress& progress) {
  engine_->begin(*parts_.model, micro);
  // Factors come from the first pass, sums from the second: output gradients must be the same to
  // the last bit, and a GPU's attention has kernels whose backward sums in no fixed order.
  const DeterminismGuard same_twice(device_.is_cuda() && engine_->is_private() &&
                                    engine_->needs_second_pass());

  timer.begin("forward");
  const models::WordsInUse words(model().seam(), batch);
  at::Tensor losses_B;
  {
    const at::AutoGradMode enable(true);
    losses_B = parts_.model->losses(batch);
  }
  // The gradient of the sum: sample b's row of every output gradient is then its own, unscaled, and
  // that of a row that counts nowhere is zero. The anchor's own gradient is asked for so that
  // LibTorch walks the whole graph; it is not used.
  const at::Tensor total =
      batch.counted.defined() ? (losses_B * batch.counted).sum() : losses_B.sum();
  const auto of_samples = [&](const at::Tensor& of_rows) {
    return of_rows.narrow(0, 0, batch.samples());
  };
  if (batch.samples() > 0) progress.losses.push_back(of_samples(losses_B.detach()));
  // With offload the host's updates take as long as the backward pass: they run beside it, once no
  // loss can reject the step any more.
  if (progress.is_last && parallel_->works_beside() && !finish_->updates_early()) {
    finish_->check_losses(progress);
    // The norm over all of them must be known first.
    if (parts_.step.clip_global_norm == 0) update_early(timer, progress);
  }
  const auto backward = [&](bool keep_graph) {
    parallel_->begin_backward(/*last=*/!keep_graph);
    torch::autograd::grad({total}, {parts_.model->seam().anchor}, {}, keep_graph, false, true);
    parallel_->end_backward();
  };
  timer.begin("backward");
  backward(engine_->needs_second_pass());
  privacy::ClipReport clipped = engine_->clip(timer);
  progress.report.kept_bytes = std::max(progress.report.kept_bytes, engine_->kept_bytes());
  if (engine_->needs_second_pass()) {
    // The same losses again, not losses scaled by the factors: output gradients are then the very
    // numbers of the first pass, and the factors are applied where the sums are formed. Scaled
    // losses would round differently, underflow for small factors, and make 0 x inf of a dropped
    // sample.
    timer.begin("second_backward");
    backward(false);
    engine_->end_second_pass();
  }
  const at::Tensor squares = std::exchange(own_squares_, {});
  if (batch.samples() == 0) return;
  if (squares.defined()) progress.squares.push_back(of_samples(squares));
  if (clipped.norms.defined()) progress.norms.push_back(of_samples(clipped.norms));
  if (clipped.factors.defined()) progress.factors.push_back(of_samples(clipped.factors));
  for (privacy::LayerNorms& layer : clipped.layers) {
    layer.norms = of_samples(layer.norms);
    if (layer.factors.defined()) layer.factors = of_samples(layer.factors);
    progress.report.layers.push_back(std::move(layer));
  }
}

}  // namespace moonshard::train
