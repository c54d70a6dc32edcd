#include "runtime/train/trainer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/core/determinism.h"
#include "runtime/core/device.h"
#include "runtime/core/interrupt.h"
#include "runtime/core/memory_errors.h"
#include "runtime/privacy/faults.h"
#include "runtime/train/micro_batches.h"

namespace moonshard::train {
namespace {

std::vector<double> to_doubles(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU, at::kDouble).contiguous();
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
}

// Attached only while a step runs: whoever uses the model outside of a step meets no engine.
class SeamGuard {
 public:
  SeamGuard(models::Model& model, models::GradientConsumer& consumer) : model_(model) {
    model_.seam().consumer = &consumer;
  }
  ~SeamGuard() {
    model_.seam().consumer = nullptr;
    for (const auto& parameter : model_.parameters()) parameter->grad = at::Tensor();
  }
  SeamGuard(const SeamGuard&) = delete;
  SeamGuard& operator=(const SeamGuard&) = delete;

 private:
  models::Model& model_;
};

}  // namespace

// What the micro-batches of a step leave for its end.
struct Trainer::Progress {
  StepReport report;
  std::vector<at::Tensor> losses, norms, factors;
};

Trainer::Trainer(std::shared_ptr<models::Model> model, const privacy::ClipOptions& clip,
                 const optim::OptimizerOptions& optimizer,
                 std::unique_ptr<data::SyntheticData> data, const StepOptions& options)
    : model_(std::move(model)),
      options_(options),
      optimizer_options_(optimizer),
      clipping_(std::make_shared<privacy::Clipping>(clip)),
      engine_(privacy::make_engine(clip, clipping_)),
      optimizer_(optim::make_optimizer(optimizer)),
      data_(std::move(data)),
      device_(resolve_device(model_->options().device)) {
  optim::learning_rate(optimizer_options_, optimizer_options_.lr_warmup_steps + 1);  // checks it
}

StepReport Trainer::step() {
  MS_CHECK(data_ != nullptr,
           "trainer: expected a data source or a batch, got neither; give data = …");
  profile::PhaseTimer timer(device_);
  timer.begin("data");
  std::vector<Batch> drawn;
  for (int64_t i = 0; i < options_.grad_accum; ++i) drawn.push_back(data_->next());
  return run_step(drawn, timer);
}

StepReport Trainer::step(const Batch& batch) {
  profile::PhaseTimer timer(device_);
  return run_step(micro_batches(batch, options_.grad_accum), timer);
}

StepReport Trainer::run_step(const std::vector<Batch>& micro_batches,
                             profile::PhaseTimer& timer) try {
  throw_if_interrupted();
  MS_CHECK(std::any_of(model_->parameters().begin(), model_->parameters().end(),
                       [](const auto& parameter) { return parameter->trainable; }),
           "trainer: expected at least one trainable parameter, got none: all are frozen");
  const SeamGuard attached(*model_, *engine_);
  const DeterminismGuard determinism(options_.deterministic);
  Progress progress;
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    // Nothing to learn from, and nothing to clip: an empty batch is noise alone.
    if (micro_batches[i].size() == 0) continue;
    model_->check(micro_batches[i]);
    run_micro_batch(model_->prepare(micro_batches[i], step_, progress.report.batch_size),
                    static_cast<int64_t>(i), timer, progress);
  }
  finish_step(timer, progress);
  return std::move(progress.report);
} catch (...) {
  rethrow_memory_errors();
}

void Trainer::run_micro_batch(const Batch& batch, int64_t index, profile::PhaseTimer& timer,
                              Progress& progress) {
  const int64_t tokens = model_->count_tokens(batch);
  progress.report.batch_size += batch.size();
  progress.report.tokens += tokens;
  engine_->begin(*model_, {batch.size(), tokens / batch.size(), index, record_layers_});

  timer.begin("forward");
  at::Tensor losses_B;
  {
    const at::AutoGradMode enable(true);
    losses_B = model_->losses(batch);
  }
  // The gradient of the sum: sample b's row of every output gradient is then its own, unscaled. The
  // anchor's own gradient is asked for so that LibTorch walks the whole graph; it is not used.
  const at::Tensor total = losses_B.sum();
  const auto backward = [&](bool keep_graph) {
    torch::autograd::grad({total}, {model_->seam().anchor}, {}, keep_graph, false, true);
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
  progress.losses.push_back(losses_B.detach());
  if (clipped.norms.defined()) progress.norms.push_back(clipped.norms);
  if (clipped.factors.defined()) progress.factors.push_back(clipped.factors);
  for (privacy::LayerNorms& layer : clipped.layers)
    progress.report.layers.push_back(std::move(layer));
}

void Trainer::finish_step(profile::PhaseTimer& timer, Progress& progress) {
  StepReport& report = progress.report;
  const int64_t denominator =
      options_.expected_batch_size > 0 ? options_.expected_batch_size : report.batch_size;
  MS_CHECK(
      denominator > 0,
      "trainer: expected at least one sample, got an empty batch; give expected_batch_size, so "
      "that a private step of noise alone has a denominator");
  MS_CHECK(engine_->is_private() || report.batch_size > 0,
           "trainer: expected at least one sample, got an empty batch; without privacy there is "
           "nothing to do in such a step");
  const at::Tensor losses =
      progress.losses.empty() ? at::zeros({0}, at::kDouble) : at::cat(progress.losses);
  if (!engine_->is_private()) {
    // Private engines drop such a sample. Here it would spoil every weight.
    const at::Tensor bad = losses.isfinite().logical_not();
    MS_CHECK(!bad.any().item<bool>(),
             "trainer: step {}: expected finite losses, got {} in sample {} of {}; the weights are "
             "unchanged, look at the data or lower lr",
             step_ + 1, losses[bad.nonzero()[0][0]].item<double>(),
             bad.nonzero()[0][0].item<int64_t>() + 1, losses.size(0));
  }
  if (losses.numel() > 0 && !losses.isfinite().any().item<bool>()) {
    // All samples at once are not finite: samples may be dropped, broken weights may not.
    for (const auto& parameter : model_->parameters()) {
      MS_CHECK(
          parameter->value.isfinite().all().item<bool>(),
          "trainer: step {}: expected finite weights, got some in '{}' that are not; they came "
          "so, or an earlier step was too large: lower lr",
          step_ + 1, parameter->name);
    }
  }
  const at::Tensor norms = progress.norms.empty() ? at::Tensor() : at::cat(progress.norms);
  report.clip_bound = engine_->is_private() ? clipping_->bound() : 0;
  if (engine_->is_private()) {
    timer.begin("noise");
    add_noise(denominator);
    clipping_->end_step(norms, denominator, static_cast<uint64_t>(model_->options().seed),
                        step_ + 1);
  }
  timer.begin("optimizer");
  report.lr = optim::learning_rate(optimizer_options_, step_ + 1);
  scale_gradients(denominator);
  if (gradient_observer_) gradient_observer_(*model_);
  optimizer_->step(model_->parameters(), report.lr);
  report.phases = timer.finish();
  report.step = ++step_;
  for (const auto& [phase, ms] : report.phases) report.time_ms += ms;
  const at::Tensor finite = losses.masked_select(losses.isfinite());
  report.loss = finite.numel() > 0 ? finite.to(at::kDouble).mean().item<double>()
                                   : std::numeric_limits<double>::quiet_NaN();
  if (norms.defined()) {
    report.norms = to_doubles(norms);
    report.clip_fraction = norms.gt(report.clip_bound).to(at::kDouble).mean().item<double>();
    at::Tensor dropped = norms.isfinite().logical_not();
    if (!progress.factors.empty()) {
      const at::Tensor factors = at::cat(progress.factors);
      report.factors = to_doubles(factors);
      dropped = dropped.logical_or(factors.eq(0));
    }
    report.dropped = dropped.sum().item<int64_t>();
  }
  report.memory = profile::read_memory(device_);
}

void Trainer::add_noise(int64_t denominator) {
  const double std = clipping_->noise_std(denominator);
  for (const auto& parameter : model_->parameters()) {
    if (!parameter->trainable) continue;
    // A trainable parameter that no sample touched still gets its noise: its silence would tell.
    if (!parameter->grad.defined()) {
      const bool narrow = parameter->value.element_size() < 4;
      parameter->grad =
          at::zeros_like(parameter->value, narrow ? parameter->value.options().dtype(at::kFloat)
                                                  : parameter->value.options());
    }
    if (std == 0) continue;
    parameter->grad = parameter->grad.contiguous();
    kernels::add_counter_noise(parameter->grad, std,
                               {static_cast<uint64_t>(model_->options().seed),
                                static_cast<uint32_t>(step_ + 1), parameter->index});
  }
}

void Trainer::scale_gradients(int64_t denominator) {
  if (privacy::has_fault(privacy::Fault::WrongDenominator)) return;
  for (const auto& parameter : model_->parameters()) {
    if (parameter->grad.defined()) parameter->grad.div_(static_cast<double>(denominator));
  }
}

}  // namespace moonshard::train
