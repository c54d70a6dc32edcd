#include "runtime/train/trainer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <exception>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/core/device.h"
#include "runtime/optim/optimizer.h"
#include "runtime/privacy/layer_rules.h"
#include "runtime/profile/ledger.h"
#include "runtime/profile/timeline.h"
#include "runtime/sharding/settle_rows.h"
#include "runtime/train/global_norm.h"
#include "runtime/train/step_finish.h"
#include "runtime/train/step_graph.h"
#include "runtime/train/step_watch.h"

namespace moonshard::train {
namespace {

// Attached only while a step runs: outside of a step the model has no engine.
class StepGuard {
 public:
  StepGuard(models::Model& model, models::GradientConsumer& consumer, sharding::Parallel& parallel,
            privacy::StepHooks& hooks)
      : model_(model), parallel_(parallel), hooks_(hooks), exceptions_(std::uncaught_exceptions()) {
    hooks_.begin_step(model_);
    parallel_.record_into(profile::recording_timeline());
    model_.seam().consumer = &consumer;
    parallel_.begin_step();
  }
  ~StepGuard() {
    model_.seam().consumer = nullptr;
    hooks_.end_step(model_);
    for (const auto& parameter : model_.parameters()) sharding::forget_gradient(*parameter);
    parallel_.on_complete({});
    parallel_.record_into(nullptr);
    if (std::uncaught_exceptions() == exceptions_) return;
    try {
      parallel_.abandon();
    } catch (...) {  // the error that led here is the one to tell
    }
  }
  StepGuard(const StepGuard&) = delete;
  StepGuard& operator=(const StepGuard&) = delete;

 private:
  models::Model& model_;
  sharding::Parallel& parallel_;
  privacy::StepHooks& hooks_;
  int exceptions_;
};

// Loss of all ranks; norms and factors of this one.
void report_own(StepProgress& progress) {
  StepReport& report = progress.report;
  report.loss = progress.sums.finite > 0 ? progress.sums.loss / progress.sums.finite
                                         : std::numeric_limits<double>::quiet_NaN();
  const at::Tensor norms = joined(progress.norms), factors = joined(progress.factors);
  if (!norms.defined()) return;
  report.norms = to_doubles(norms);
  if (!progress.squares.empty()) report.squares_before_sum = to_doubles(joined(progress.squares));
  if (factors.defined()) report.factors = to_doubles(factors);
  for (size_t i = 0; i < report.norms.size(); ++i) {
    const bool is_left_out = !report.factors.empty() && report.factors[i] == 0;
    if (is_left_out || !std::isfinite(report.norms[i])) ++report.dropped;
  }
}

}  // namespace

void Trainer::record_timeline(bool on) {
  watch_->wishes.timeline = on;
}

void Trainer::record_details(bool on) {
  watch_->wishes.details = on;
}

void Trainer::trace(int64_t steps, const std::filesystem::path& file) {
  watch_->ask_for_trace(steps, file);
}

bool Trainer::traces_next_step() {
  return watch_->traces_next_step(parts_.world->rank());
}

std::string Trainer::half_done() const {
  return half_restored_ ? "resume" : half_updated_ ? "step" : "";
}

RunState Trainer::state() const {
  RunState state;
  state.step = step_;
  if (parts_.data != nullptr) state.data_position = parts_.data->position();
  state.clip_bound = clipping_->bound();
  state.spent = account_.spent();
  state.checkpoint = checkpoint_;
  return state;
}

void Trainer::restore(const RunState& state) {
  if (state.seed) {
    parts_.model->use_seed(*state.seed);
    model_draws_ = model().seed_words();
    if (parts_.data != nullptr) parts_.data->use_seed(*state.seed);
  }
  if (parts_.data != nullptr && state.data_position) parts_.data->go_to(*state.data_position);
  if (clipping_->options().clipping == "adaptive") clipping_->set_bound(state.clip_bound);
  step_ = state.step;
  checkpoint_ = state.checkpoint;
  account_.go_on_from(state.spent);
  // The same steps may come again, with other samples: never with the same noise.
  if (engine_->is_private()) {
    draw_secrets();
    compare_ranks();
  }
  half_restored_ = half_updated_ = false;
  drop_graph();
}

// A gradient is read, everything else is read and written.
int64_t Trainer::plain_update_bytes() const {
  int64_t bytes = 2 * optimizer_.state_bytes();
  for (const auto& part : parallel_->updated()) {
    bytes += part->value.numel() * 4;
    for (const at::Tensor& half : {part->value, part->low})
      if (half.defined()) bytes += 2 * static_cast<int64_t>(half.nbytes());
  }
  return bytes;
}

void Trainer::begin_watch() {
  watch_->begin({parts_.world->rank(), parts_.world->size(), parallel_->transport(),
                 parts_.model->options().model + " " + engine_->name()});
  if (watch_->is_traced()) watch_->set_update_bytes(plain_update_bytes());
  if (!watch_->wishes.details) return;
  if (graph_ != nullptr) graph_->claim_memory();
  for (const auto& parameter : parts_.model->parameters())
    profile::claim(parameter->value, profile::Owner::Parameters);
  for (const at::Tensor& part : parallel_->kept_frozen())
    profile::claim(part, profile::Owner::Parameters);
  for (const auto& part : parallel_->updated()) {
    for (const at::Tensor& half : {part->value, part->low})
      if (half.defined()) profile::claim(half, profile::Owner::Parameters);
    for (const auto& [name, tensor] : optimizer_.state(*part).tensors)
      profile::claim(tensor, profile::Owner::OptimizerState);
  }
}

StepReport Trainer::step() {
  MS_CHECK(parts_.data != nullptr,
           "trainer: expected a data source or a batch, got neither; give data = …");
  const StepWatch::Guard watched(*watch_);
  begin_watch();
  profile::PhaseTimer timer(device_);
  timer.begin("data");
  account_.check_left();
  // A step that fails before it changes anything is done again with the same samples: passing over
  // draws that did not fit would choose among them.
  const int64_t position = parts_.data->position(), last_step = step_;
  try {
    return run_step(parts_.data->next_step(parts_.step.grad_accum), timer);
  } catch (...) {
    // One that fails after its update has used them up.
    const bool is_unchanged = !half_updated_ && step_ == last_step;
    if (account_.sampling().sampler == "poisson" && is_unchanged) parts_.data->go_to(position);
    throw;
  }
}

StepReport Trainer::step(const Batch& batch) {
  const StepWatch::Guard watched(*watch_);
  begin_watch();
  profile::PhaseTimer timer(device_);
  account_.invalidate_claim(
      "a step's batch was given by the script: nobody knows how it was drawn");
  return run_step(micro_batches(batch, parts_.step.grad_accum), timer);
}

StepReport Trainer::run_step(const std::vector<Batch>& micro_batches,
                             profile::PhaseTimer& timer) try {
  check_runnable();
  account_.take_model();
  for (const auto& layer : parts_.model->layers()) {
    if (!account_.has_claim()) break;
    if (layer->trainable() && !privacy::has_built_in_rule(*layer))
      account_.invalidate_claim(fmt::format(
          "layer '{}' of kind {} has a rule of a script, whose norms nobody has proven here",
          layer->name, layer->kind));
  }
  tell_counts(micro_batches, timer);
  StepProgress progress;
  plan_update(progress);
  std::optional<StepGuard> attached(std::in_place, *parts_.model, *engine_, *parallel_, hooks_);
  const bool is_wide =
      model().computes_in_double() || dtype_from_name(model().options().dtype) == at::kDouble;
  progress.update.emplace(*parallel_, optimizer_, progress.noise,
                          is_wide ? at::kDouble : at::kFloat, progress.report.lr, half_updated_);
  const DeterminismGuard determinism(parts_.step.deterministic);
  if (!run_graph(micro_batches, timer, progress)) {
    run_micro_batches(micro_batches, timer, progress);
    timer.all_launched();
  }
  finish_step(timer, progress);
  attached.reset();  // gradients are gone: what is held now is held between steps
  watch_->end(progress.report);
  return std::move(progress.report);
} catch (...) {
  // What it changed may be seen: a resume takes the weights back, not the charge.
  if (half_updated_ && engine_->is_private())
    account_.count_step(clipping_->options().noise_multiplier);
  if (half_updated_)
    account_.invalidate_claim("a step failed after it had begun to update the weights");
  rethrow_memory_errors();
}

void Trainer::check_runnable() const {
  throw_if_interrupted();
  MS_CHECK(!half_restored_,
           "trainer: expected whole weights, got those of a resume that failed on its way; resume "
           "from a good checkpoint first");
  MS_CHECK(!half_updated_,
           "trainer: expected whole weights, got those of a step that failed after it had begun to "
           "update them; resume from a good checkpoint first");
  MS_CHECK(std::any_of(model().parameters().begin(), model().parameters().end(),
                       [](const auto& parameter) { return parameter->trainable; }),
           "trainer: expected at least one trainable parameter, got none: all are frozen");
}

// What ranks must exchange before they can decide alike.
void Trainer::tell_counts(const std::vector<Batch>& micro_batches, profile::PhaseTimer& timer) {
  OwnCounts own;
  own.step = step_ + 1;
  for (const Batch& batch : micro_batches) {
    if (batch.size() == 0) continue;
    model().check(batch);  // before the other ranks rely on this one
    const int64_t tokens_per_sample = model().count_tokens(batch) / batch.size();
    own.samples += batch.samples();
    own.tokens += tokens_per_sample * batch.samples();
    own.most_samples = std::max(own.most_samples, batch.size());
    own.most_tokens_per_sample = std::max(own.most_tokens_per_sample, tokens_per_sample);
  }
  own.way = possible_way(micro_batches);
  own.awaits_decision = graph_ != nullptr && graph_->awaits_decision();
  own.takes_other_plan = engine_->takes_other_plan();
  if (parts_.world->size() > 1) timer.begin("reduce");
  statistics_.start_counts(own);
  if (parts_.world->size() > 1) statistics_.counts();  // waits
}

// What the sums of this step will be divided by, their noise, and the learning rate.
void Trainer::plan_update(StepProgress& progress) {
  const int64_t samples = statistics_.counts().all_samples;
  progress.denominator =
      parts_.step.expected_batch_size > 0 ? parts_.step.expected_batch_size : samples;
  MS_CHECK(
      progress.denominator > 0,
      "trainer: expected at least one sample, got an empty batch; give expected_batch_size, so "
      "that a private step of noise alone has a denominator");
  finish_->check_samples(samples);
  progress.report.step = step_ + 1;
  progress.report.batch_size = samples;
  progress.report.tokens = statistics_.counts().all_tokens;
  progress.report.lr = optim::learning_rate(parts_.optimizer, step_ + 1);
  progress.noise = finish_->noise(step_ + 1, progress.denominator);
  hooks_.change_noise(progress.noise, {false, samples, parts_.world->rank(), parts_.world->size()});
}

void Trainer::finish_step(profile::PhaseTimer& timer, StepProgress& progress) {
  StepReport& report = progress.report;
  finish_->before_update(progress, timer);
  parallel_->finish_gradients();
  if (parts_.step.clip_global_norm > 0) clip_globally(progress);
  if (gradient_observer_) show_gradients(timer, progress);
  timer.begin(gradient_observer_ ? "optimizer" : finish_->update_phase());
  progress.update->apply_rest();
  report.sharding = parallel_->memory();
  if (progress.replayed && parts_.sharding.parallel != "none")
    report.sharding.gradients = progress.replayed_gradients;
  parallel_->record_into(nullptr);  // what is gathered for the next step is not this one's
  parallel_->end_step();
  step_ = report.step;
  finish_->count(report);
  half_updated_ = false;
  finish_->after_update(progress, timer);
  report.phases = timer.finish();
  for (const auto& [phase, ms] : report.phases) report.time_ms += ms;
  finish_->report(progress);
  report_own(progress);
  report.traffic = progress.replayed ? progress.replayed_traffic : parallel_->traffic();
  report.memory = profile::read_memory(device_);
  if (progress.replayed) {
    report.memory.max_allocated_bytes = std::max(
        report.memory.max_allocated_bytes, report.memory.allocated_bytes + graph_->working_bytes());
  } else {
    engine_->observe_step({report.time_ms, report.tokens, report.dropped});
  }
  observe_for_graph(timer.host_share(), progress);  // may drop the graph
}

// Every rank computes the same norm, and comes to the same verdict.
void Trainer::clip_globally(StepProgress& progress) {
  const bool spread = parts_.sharding.parallel == "fsdp";
  const double norm = global_norm(*parallel_, *parts_.world, spread) / progress.noise.denominator;
  MS_CHECK(std::isfinite(norm),
           "trainer: step {}: expected finite gradients, got a norm of {}; the weights are "
           "unchanged, look at the data or lower lr",
           progress.report.step, norm);
  progress.report.grad_norm = norm;
  if (norm <= parts_.step.clip_global_norm) return;
  progress.noise.denominator *= norm / parts_.step.clip_global_norm;
  progress.update->divide_by(progress.noise.denominator);
}

// Noise and division at once, for all to see; the update that follows adds nothing to them.
void Trainer::show_gradients(profile::PhaseTimer& timer, StepProgress& progress) {
  const auto& updated = parallel_->updated();
  if (progress.noise.updates_all) timer.begin("noise");
  for (size_t i = 0; i < updated.size(); ++i)
    optim::add_noise(*updated[i], parallel_->first_element(i), progress.noise);
  timer.begin("optimizer");
  for (const auto& parameter : updated)
    if (parameter->grad.defined()) parameter->grad.div_(progress.noise.denominator);
  parallel_->expose_gradients();
  gradient_observer_(model());
  optim::NoiseSpec added;
  added.variance = progress.noise.variance;
  added.key = progress.noise.key;
  progress.update.emplace(*parallel_, optimizer_, added, at::kFloat, progress.report.lr,
                          half_updated_);
}

}  // namespace moonshard::train
