#include "runtime/train/trainer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/core/device.h"
#include "runtime/core/interrupt.h"
#include "runtime/core/memory_errors.h"

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

Trainer::Trainer(std::shared_ptr<models::Model> model, const privacy::ClipOptions& clip,
                 const optim::OptimizerOptions& optimizer,
                 std::unique_ptr<data::SyntheticData> data)
    : model_(std::move(model)),
      clip_(clip),
      engine_(privacy::make_engine(clip)),
      optimizer_(optim::make_optimizer(optimizer)),
      data_(std::move(data)),
      device_(resolve_device(model_->options().device)) {}

StepReport Trainer::step() {
  MS_CHECK(data_ != nullptr,
           "trainer: expected a data source or a batch, got neither; give data = …");
  profile::PhaseTimer timer(device_);
  timer.begin("data");
  const Batch batch = data_->next();
  return run_step(batch, timer);
}

StepReport Trainer::step(const Batch& batch) {
  profile::PhaseTimer timer(device_);
  return run_step(batch, timer);
}

StepReport Trainer::run_step(const Batch& batch, profile::PhaseTimer& timer) try {
  throw_if_interrupted();
  const SeamGuard attached(*model_, *engine_);
  StepReport report;
  report.batch_size = batch.size();
  report.tokens = batch.tokens();
  engine_->begin(*model_, batch.size());

  timer.begin("forward");
  at::Tensor losses_B;
  {
    const at::AutoGradMode enable(true);
    losses_B = model_->losses(batch);
  }
  timer.begin("backward");
  // The gradient of the sum: sample b's row of every output gradient is then its own, unscaled. The
  // anchor's own gradient is asked for so that LibTorch walks the whole graph; it is not used.
  torch::autograd::grad({losses_B.sum()}, {model_->seam().anchor}, {}, std::nullopt, false, true);

  const privacy::ClipReport clipped = engine_->finish(timer);
  if (engine_->is_private()) {
    timer.begin("noise");
    add_noise();
  }
  timer.begin("optimizer");
  scale_gradients(batch.size());
  optimizer_->step(model_->parameters());
  report.phases = timer.finish();
  report.step = ++step_;
  for (const auto& [phase, ms] : report.phases) report.time_ms += ms;
  report.loss = losses_B.detach().mean().item<double>();
  if (clipped.norms.defined()) {
    report.norms = to_doubles(clipped.norms);
    report.clip_fraction =
        clipped.norms.gt(clip_.max_grad_norm).to(at::kDouble).mean().item<double>();
  }
  report.memory = profile::read_memory(device_);
  return report;
} catch (...) {
  rethrow_memory_errors();
}

void Trainer::add_noise() {
  const double std = clip_.noise_multiplier * clip_.max_grad_norm;
  if (std == 0) return;
  for (const auto& parameter : model_->parameters()) {
    if (!parameter->trainable) continue;
    // A trainable parameter that no sample touched still gets its noise: its silence would tell.
    if (!parameter->grad.defined()) parameter->grad = at::zeros_like(parameter->value);
    parameter->grad = parameter->grad.contiguous();
    kernels::add_counter_noise(parameter->grad, std,
                               {static_cast<uint64_t>(model_->options().seed),
                                static_cast<uint32_t>(step_ + 1), parameter->index});
  }
}

void Trainer::scale_gradients(int64_t denominator) {
  for (const auto& parameter : model_->parameters()) {
    if (parameter->grad.defined()) parameter->grad.div_(static_cast<double>(denominator));
  }
}

}  // namespace moonshard::train
