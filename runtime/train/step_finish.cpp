#include "runtime/train/step_finish.h"

#include <ATen/ATen.h>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/base/check.h"
#include "runtime/optim/optimizer.h"

namespace moonshard::train {

at::Tensor joined(const std::vector<at::Tensor>& parts) {
  return parts.empty() ? at::Tensor() : at::cat(parts);
}

namespace {

at::Tensor losses_of(const StepProgress& progress) {
  const at::Tensor losses = joined(progress.losses);
  return losses.defined() ? losses : at::zeros({0}, at::kDouble);
}

// ---- without privacy ---------------------------------------------------------------------------

class PlainFinish : public StepFinish {
 public:
  explicit PlainFinish(const FinishParts& parts) : parts_(parts) {}

  bool updates_early() const override { return false; }
  const char* update_phase() const override { return "optimizer"; }

  void check_samples(int64_t samples) const override {
    MS_CHECK(samples > 0,
             "trainer: expected at least one sample, got an empty batch; without privacy there is "
             "nothing to do in such a step");
  }

  optim::NoiseSpec noise(int64_t, int64_t denominator) const override {
    optim::NoiseSpec noise;
    noise.denominator = static_cast<double>(denominator);
    noise.key = static_cast<uint64_t>(parts_.model.options().seed);  // of coins that round states
    return noise;
  }

  // One loss that is not finite would damage every weight: the step is refused. Every rank comes to
  // the same verdict; none goes on alone.
  void before_update(StepProgress& progress, profile::PhaseTimer& timer) override {
    if (parts_.world.size() > 1) timer.begin("reduce");
    if (!progress.has_sums) check_losses(progress);
  }

  void check_losses(StepProgress& progress) override {
    const at::Tensor losses = losses_of(progress);
    progress.sums = parts_.statistics.sum_losses(losses);
    progress.has_sums = true;
    if (progress.sums.not_finite == 0) return;
    const at::Tensor bad = losses.isfinite().logical_not().nonzero();
    MS_CHECK(bad.size(0) == 0,
             "trainer: step {}: expected finite losses, got {} in sample {} of {}; the weights are "
             "unchanged, look at the data or lower lr",
             progress.report.step, losses[bad[0][0]].item<double>(), bad[0][0].item<int64_t>() + 1,
             losses.size(0));
    throw UsageError(fmt::format(
        "trainer: step {}: expected finite losses, got {} on another rank that are not; the "
        "weights are unchanged, look at that rank's log",
        progress.report.step, progress.sums.not_finite));
  }

  void count(StepReport&) override {}
  void after_update(StepProgress&, profile::PhaseTimer&) override {}
  void report(StepProgress&) override {}

 private:
  FinishParts parts_;
};

// ---- with privacy ------------------------------------------------------------------------------

// Samples whose loss is not finite are dropped by the engine: no loss can take the step back.
class PrivateFinish : public StepFinish {
 public:
  explicit PrivateFinish(const FinishParts& parts) : parts_(parts) {}

  bool updates_early() const override { return true; }
  const char* update_phase() const override { return "update"; }
  void check_samples(int64_t) const override {}  // without samples it is noise alone

  // Only this rank's elements are drawn, by their place in the parameter: any number of ranks draws
  // the same noise, and none draws the whole. A trainable parameter that no sample touched gets its
  // noise, too: without it the weights would show that no sample used it.
  optim::NoiseSpec noise(int64_t step, int64_t denominator) const override {
    optim::NoiseSpec noise;
    noise.denominator = static_cast<double>(denominator);
    noise.std = parts_.clipping.noise_std(denominator);
    noise.variance = (noise.std / noise.denominator) * (noise.std / noise.denominator);
    noise.key = static_cast<uint64_t>(parts_.model.options().seed);
    noise.secret = parts_.account.secret();
    noise.step = static_cast<uint32_t>(step);
    noise.updates_all = true;
    return noise;
  }

  void before_update(StepProgress& progress, profile::PhaseTimer& timer) override {
    progress.report.clip_bound = parts_.clipping.bound();
    // Under way while the step goes on: nothing waits for it but the report.
    parts_.statistics.start_norms(joined(progress.norms));
    if (parts_.world.size() > 1) timer.begin("reduce");
  }

  void count(StepReport& report) override {
    parts_.account.count_step(parts_.clipping.options().noise_multiplier);
    report.privacy_steps = parts_.account.private_steps();
    if (parts_.account.has_claim()) report.epsilon = parts_.account.epsilon_so_far();
  }

  void after_update(StepProgress& progress, profile::PhaseTimer& timer) override {
    if (parts_.world.size() > 1) timer.begin("reduce");
    progress.sums = parts_.statistics.sum_losses(losses_of(progress));
  }

  void report(StepProgress& progress) override {
    check_weights(progress);
    StepReport& report = progress.report;
    const at::Tensor all = parts_.statistics.norms();
    parts_.clipping.end_step(all, progress.denominator, [&](at::Tensor& count, double std) {
      optim::NoiseSpec noise = this->noise(report.step, progress.denominator);
      noise.std = std;
      parts_.hooks.change_noise(
          noise, {true, report.batch_size, parts_.world.rank(), parts_.world.size()});
      optim::draw_noise(count, noise, kernels::kPurposeClipCount);
    });
    report.all_norms = to_doubles(all);
    if (all.numel() > 0)
      report.clip_fraction = all.gt(report.clip_bound).to(at::kDouble).mean().item<double>();
  }

 private:
  // Some samples may be dropped. Where all losses are not finite the weights may be broken, and
  // that is an error on every rank.
  void check_weights(const StepProgress& progress) {
    if (progress.sums.finite > 0 || progress.sums.not_finite == 0) return;
    std::string broken;
    for (const auto& parameter : parts_.parallel.updated()) {
      if (broken.empty() && !parameter->value.isfinite().all().item<bool>())
        broken = parameter->name;
    }
    MS_CHECK(!parts_.statistics.any(!broken.empty()),
             "trainer: step {}: expected finite weights, got some in {} that are not; they came "
             "so, or an earlier step was too large: lower lr",
             progress.report.step, broken.empty() ? "another rank's part" : "'" + broken + "'");
  }

  FinishParts parts_;
};

}  // namespace

std::unique_ptr<StepFinish> make_plain_finish(const FinishParts& parts) {
  return std::make_unique<PlainFinish>(parts);
}

std::unique_ptr<StepFinish> make_private_finish(const FinishParts& parts) {
  return std::make_unique<PrivateFinish>(parts);
}

}  // namespace moonshard::train
