#include "runtime/train/trainer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <exception>

#include "runtime/base/interrupt.h"
#include "runtime/core/determinism.h"
#include "runtime/core/device.h"
#include "runtime/core/memory_errors.h"
#include "runtime/privacy/faults.h"
#include "runtime/profile/owners.h"
#include "runtime/profile/zone.h"
#include "runtime/sharding/settle_rows.h"
#include "runtime/train/micro_batches.h"
#include "runtime/train/run_secret.h"
#include "runtime/train/step_graph.h"
#include "runtime/train/step_progress.h"
#include "runtime/train/step_watch.h"

namespace moonshard::train {
namespace {

std::vector<double> to_doubles(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU, at::kDouble).contiguous();
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
}

// Attached only while a step runs: whoever uses the model outside of a step meets no engine.
class StepGuard {
 public:
  StepGuard(models::Model& model, models::GradientConsumer& consumer, sharding::Parallel& parallel)
      : model_(model), parallel_(parallel), exceptions_(std::uncaught_exceptions()) {
    parallel_.record_into(profile::recording_timeline());
    model_.seam().consumer = &consumer;
    parallel_.begin_step();
  }
  ~StepGuard() {
    model_.seam().consumer = nullptr;
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
  int exceptions_;
};

// One sample of zeros in the shape of the batch's.
Batch stand_in_for(const Batch& empty) {
  const auto one = [](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape[0] = 1;
    return at::zeros(shape, tensor.options());
  };
  Batch batch{one(empty.input_ids), one(empty.attention_mask), one(empty.labels),
              one(empty.inputs),    one(empty.targets),        one(empty.timesteps)};
  if (batch.attention_mask.defined()) batch.attention_mask.fill_(true);
  return batch;
}

}  // namespace

namespace {

// Before the model is taken apart for the ranks.
StepOptions checked(const StepOptions& options, const privacy::ClipOptions& clip,
                    const optim::OptimizerOptions& optimizer,
                    const sharding::ShardingOptions& sharding) {
  optim::learning_rate(optimizer, optimizer.lr_warmup_steps + 1);
  MS_CHECK(sharding.norm_reduce != "sum" || clip.clipping != "per_layer",
           "trainer: norm_reduce = sum expects one norm per sample, got clipping = per_layer");
  MS_CHECK(sharding.parallel != "ddp" || !sharding.cpu_offload,
           "parallel: cpu_offload expects fsdp, got ddp, which keeps everything on the device");
  return options;
}

data::Sampling sampling_of(const data::Source* data) {
  if (data != nullptr) return data->sampling();
  data::Sampling given;
  given.sampler = "given";
  given.why_no_epsilon = "batches are given by the script: nobody knows how they were drawn";
  return given;
}

int64_t next_serial() {
  static std::atomic<int64_t> count{0};
  return ++count;
}

}  // namespace

Trainer::Trainer(std::shared_ptr<models::Model> model, const privacy::ClipOptions& clip,
                 const optim::OptimizerOptions& optimizer, std::unique_ptr<data::Source> data,
                 const StepOptions& options, const sharding::ShardingOptions& sharding,
                 std::shared_ptr<comm::World> world, const PrivacyOptions& privacy)
    : model_(std::move(model)),
      options_(checked(options, clip, optimizer, sharding)),
      optimizer_options_(optimizer),
      sharding_options_(sharding),
      world_(world != nullptr ? std::move(world) : comm::make_world(sharding.world, sharding.link)),
      budget_(privacy, sampling_of(data.get()), privacy_obstacle(clip, sharding, *world_)),
      clipping_(std::make_shared<privacy::Clipping>(budget_.with_noise(clip))),
      engine_(privacy::make_engine(clip, clipping_)),
      optimizer_(optim::make_optimizer(optimizer)),
      data_(std::move(data)),
      device_(resolve_device(model_->options().device)),
      parallel_(sharding::make_parallel(*model_, sharding, *world_)),
      statistics_(*world_, device_),
      secret_(privacy.secure && engine_->is_private() ? shared_secret(*world_) : nullptr),
      serial_(next_serial()),
      watch_(std::make_unique<StepWatch>(device_)) {
  take_expected_batch_size();
  if (options_.compile) {
    graph_ = std::make_unique<StepGraph>(
        device_, graph_obstacle(device_, world_->size(), options_, clip.mode, clip.clipping,
                                sharding_options_));
  }
  if (sharding.norm_reduce != "sum" || !engine_->is_private()) return;
  engine_->reduce_norms_by(
      [this](const at::Tensor& squares) { return statistics_.summed(squares); });
}

Trainer::~Trainer() = default;

void Trainer::record_timeline(bool on) {
  watch_->wishes.timeline = on;
}

void Trainer::record_details(bool on) {
  watch_->wishes.details = on;
}

void Trainer::trace(int64_t steps, const std::filesystem::path& file) {
  watch_->ask_for_trace(steps, file);
}

void Trainer::begin_watch() {
  watch_->begin({world_->rank(), world_->size(), parallel_->transport(),
                 model_->options().model + " " + engine_->name()});
  if (!watch_->wishes.details) return;
  for (const auto& parameter : model_->parameters())
    profile::claim(parameter->value, profile::Owner::Parameters);
  for (const auto& part : parallel_->updated()) {
    profile::claim(part->value, profile::Owner::Parameters);
    for (const auto& [name, tensor] : optimizer_->state(*part).tensors)
      profile::claim(tensor, profile::Owner::OptimizerState);
  }
}

StepReport Trainer::step() {
  MS_CHECK(data_ != nullptr,
           "trainer: expected a data source or a batch, got neither; give data = …");
  const StepWatch::Guard watched(*watch_);
  begin_watch();
  profile::PhaseTimer timer(device_);
  timer.begin("data");
  budget_.check_left();
  // A step that fails before it changes anything is done again with the same samples: passing over
  // draws that did not fit would choose among them.
  const int64_t position = data_->position();
  try {
    return run_step(data_->next_step(options_.grad_accum), timer);
  } catch (...) {
    if (budget_.sampling().sampler == "poisson" && !half_updated_) data_->go_to(position);
    throw;
  }
}

StepReport Trainer::step(const Batch& batch) {
  const StepWatch::Guard watched(*watch_);
  begin_watch();
  profile::PhaseTimer timer(device_);
  budget_.spoil("a step's batch was given by the script: nobody knows how it was drawn");
  return run_step(micro_batches(batch, options_.grad_accum), timer);
}

StepReport Trainer::run_step(const std::vector<Batch>& micro_batches,
                             profile::PhaseTimer& timer) try {
  throw_if_interrupted();
  MS_CHECK(!half_resumed_,
           "trainer: expected whole weights, got those of a resume that failed on its way; resume "
           "from a good checkpoint first");
  MS_CHECK(!half_updated_,
           "trainer: expected whole weights, got those of a step that failed after it had begun to "
           "update them; resume from a good checkpoint first");
  MS_CHECK(std::any_of(model_->parameters().begin(), model_->parameters().end(),
                       [](const auto& parameter) { return parameter->trainable; }),
           "trainer: expected at least one trainable parameter, got none: all are frozen");
  take_model();
  Progress progress;
  OwnCounts own;
  own.step = step_ + 1;
  own.trainer = serial_;
  for (const Batch& batch : micro_batches) {
    progress.report.batch_size += batch.size();
    if (batch.size() == 0) continue;
    model_->check(batch);  // before the other ranks rely on this one
    const int64_t tokens = model_->count_tokens(batch);
    own.tokens += tokens;
    own.most_samples = std::max(own.most_samples, batch.size());
    own.most_tokens_per_sample = std::max(own.most_tokens_per_sample, tokens / batch.size());
  }
  own.samples = progress.report.batch_size;
  if (world_->size() > 1) timer.begin("reduce");
  statistics_.start_counts(own);
  if (world_->size() > 1) statistics_.counts();  // before anything that ranks must do alike
  progress.denominator = step_denominator();
  optim::NoiseSpec noise = step_noise(progress.denominator);
  privacy::spoil(noise, {statistics_.counts().all_samples, world_->rank(), world_->size()});
  progress.report.lr = optim::learning_rate(optimizer_options_, step_ + 1);
  std::optional<StepGuard> attached(std::in_place, *model_, *engine_, *parallel_);
  const bool is_wide = model_->seam().compute_type == at::kDouble ||
                       dtype_from_name(model_->options().dtype) == at::kDouble;
  progress.update.emplace(*parallel_, *optimizer_, noise, is_wide ? at::kDouble : at::kFloat,
                          progress.report.lr, half_updated_);
  const DeterminismGuard determinism(options_.deterministic);
  const bool as_graph = runs_as_graph() && micro_batches.size() == 1;
  if (!as_graph || !run_graph(micro_batches.front(), timer, progress))
    run_micro_batches(micro_batches, timer, progress);
  finish_step(timer, progress);
  attached.reset();  // gradients are gone: what is held now is held between steps
  watch_->end(progress.report);
  return std::move(progress.report);
} catch (...) {
  if (half_updated_) budget_.spoil("a step failed after it had begun to update the weights");
  rethrow_memory_errors();
}

void Trainer::run_micro_batches(const std::vector<Batch>& micro_batches, profile::PhaseTimer& timer,
                                Progress& progress) {
  // Nobody looks at the gradients, and no loss can take the step back: each unit is updated as soon
  // as its sum is whole, and the model's gradients never exist all at once.
  if (engine_->is_private() && !gradient_observer_) {
    parallel_->on_complete([&](const std::string& unit, const std::vector<size_t>& parts) {
      progress.update->apply(unit, parts, timer);
    });
  }
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    const Batch& batch = micro_batches[i];
    // Nothing to learn from, and nothing to clip: an empty batch is noise alone. Other ranks may
    // have samples, and their collectives want company.
    const bool stand_in = batch.size() == 0;
    if (stand_in && world_->size() == 1) continue;
    parallel_->begin_micro_batch(i + 1 == micro_batches.size());
    const int64_t first =
        progress.samples +
        (model_->draws_by_position() ? statistics_.counts().before(world_->rank()) : 0);
    run_micro_batch(stand_in ? stand_in_for(batch) : model_->prepare(batch, step_, first), stand_in,
                    static_cast<int64_t>(i), timer, progress);
    parallel_->end_micro_batch();
    if (i + 1 < micro_batches.size())  // a later one brings rows of its own
      for (const auto& parameter : model_->parameters()) sharding::settle_rows(*parameter);
    progress.samples += batch.size();
  }
}

// Who looks into a step needs one whose kernels are launched, and whose memory is taken, as it
// runs.
bool Trainer::runs_as_graph() {
  return graph_ != nullptr && graph_->is_possible() && !gradient_observer_ && !record_layers_ &&
         !watch_->is_recording() && privacy::has_fault(privacy::Fault::None) &&
         !StepGraph::memory_history_is_recorded();
}

void Trainer::run_micro_batch(const Batch& batch, bool stand_in, int64_t index,
                              profile::PhaseTimer& timer, Progress& progress) {
  engine_->begin(*model_, {batch.size(), model_->count_tokens(batch) / batch.size(), index,
                           record_layers_, statistics_.counts().most_samples,
                           statistics_.counts().most_tokens_per_sample, stand_in});

  timer.begin("forward");
  at::Tensor losses_B;
  {
    const at::AutoGradMode enable(true);
    losses_B = model_->losses(batch);
  }
  // The gradient of the sum: sample b's row of every output gradient is then its own, unscaled. The
  // anchor's own gradient is asked for so that LibTorch walks the whole graph; it is not used.
  const at::Tensor total = stand_in ? losses_B.sum() * 0 : losses_B.sum();
  const auto backward = [&](bool keep_graph) {
    parallel_->begin_backward(/*last=*/!keep_graph);
    torch::autograd::grad({total}, {model_->seam().anchor}, {}, keep_graph, false, true);
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
  if (stand_in) return;
  progress.losses.push_back(losses_B.detach());
  if (clipped.norms.defined()) progress.norms.push_back(clipped.norms);
  if (clipped.factors.defined()) progress.factors.push_back(clipped.factors);
  for (privacy::LayerNorms& layer : clipped.layers)
    progress.report.layers.push_back(std::move(layer));
}

// Every rank comes to the same verdict: none goes on alone.
void Trainer::check_losses(const at::Tensor& losses, const LossSums& sums) {
  if (!engine_->is_private() && sums.not_finite > 0) {
    // Private engines drop such a sample. Here it would spoil every weight.
    const at::Tensor bad = losses.isfinite().logical_not().nonzero();
    MS_CHECK(bad.size(0) == 0,
             "trainer: step {}: expected finite losses, got {} in sample {} of {}; the weights are "
             "unchanged, look at the data or lower lr",
             step_ + 1, losses[bad[0][0]].item<double>(), bad[0][0].item<int64_t>() + 1,
             losses.size(0));
    throw UsageError(fmt::format(
        "trainer: step {}: expected finite losses, got {} on another rank that are not; the "
        "weights are unchanged, look at that rank's log",
        step_ + 1, sums.not_finite));
  }
  if (sums.finite > 0 || sums.not_finite == 0) return;
  // All samples at once are not finite: samples may be dropped, broken weights may not.
  std::string broken;
  for (const auto& parameter : parallel_->updated()) {
    if (broken.empty() && !parameter->value.isfinite().all().item<bool>()) broken = parameter->name;
  }
  MS_CHECK(!statistics_.any(!broken.empty()),
           "trainer: step {}: expected finite weights, got some in {} that are not; they came so, "
           "or an earlier step was too large: lower lr",
           step_ + 1, broken.empty() ? "another rank's part" : "'" + broken + "'");
}

void Trainer::finish_step(profile::PhaseTimer& timer, Progress& progress) {
  StepReport& report = progress.report;
  report.batch_size = statistics_.counts().all_samples;
  report.tokens = statistics_.counts().all_tokens;
  report.clip_bound = engine_->is_private() ? clipping_->bound() : 0;
  const at::Tensor norms = progress.norms.empty() ? at::Tensor() : at::cat(progress.norms);
  // Under way while the step goes on: nothing below waits for it but the report.
  if (engine_->is_private()) statistics_.start_norms(norms);
  if (world_->size() > 1) timer.begin("reduce");
  const at::Tensor losses =
      progress.losses.empty() ? at::zeros({0}, at::kDouble) : at::cat(progress.losses);
  LossSums sums;
  if (!engine_->is_private()) {  // before the weights change
    sums = statistics_.sum_losses(losses);
    check_losses(losses, sums);
  }
  parallel_->finish_gradients();
  if (gradient_observer_) {
    show_gradients(step_noise(progress.denominator), timer);
    progress.update.emplace(*parallel_, *optimizer_, optim::NoiseSpec{}, at::kFloat, report.lr,
                            half_updated_);
  }
  timer.begin(engine_->is_private() && !gradient_observer_ ? "update" : "optimizer");
  progress.update->apply_rest();
  report.sharding = parallel_->memory();
  if (progress.replayed && sharding_options_.parallel != "none")
    report.sharding.gradients = progress.replayed_gradients;
  parallel_->record_into(nullptr);  // what is gathered for the next step is not this one's
  parallel_->end_step();
  report.step = ++step_;
  report.privacy_steps = privacy_steps_ += engine_->is_private() ? 1 : 0;
  if (engine_->is_private()) budget_.count_step(clipping_->options().noise_multiplier);
  if (budget_.has_claim()) report.epsilon = budget_.epsilon_so_far();
  half_updated_ = false;
  // All work of the step has been asked for: from here on the host may wait for it.
  if (engine_->is_private()) {
    if (world_->size() > 1) timer.begin("reduce");
    sums = statistics_.sum_losses(losses);
  }
  report.phases = timer.finish();
  for (const auto& [phase, ms] : report.phases) report.time_ms += ms;
  if (engine_->is_private()) check_losses(losses, sums);
  report.loss =
      sums.finite > 0 ? sums.loss / sums.finite : std::numeric_limits<double>::quiet_NaN();
  report_norms(norms, progress);
  report.traffic = parallel_->traffic();
  report.memory = profile::read_memory(device_);
  if (progress.replayed) {
    report.memory.max_allocated_bytes = std::max(
        report.memory.max_allocated_bytes, report.memory.allocated_bytes + graph_->working_bytes());
  }
}

void Trainer::report_norms(const at::Tensor& norms, Progress& progress) {
  StepReport& report = progress.report;
  if (engine_->is_private()) {
    const at::Tensor all = statistics_.norms();
    clipping_->end_step(all, progress.denominator,
                        [this](at::Tensor& count, double std) { add_count_noise(count, std); });
    report.all_norms = to_doubles(all);
    if (all.numel() > 0)
      report.clip_fraction = all.gt(report.clip_bound).to(at::kDouble).mean().item<double>();
  }
  if (!norms.defined()) return;
  report.norms = to_doubles(norms);
  at::Tensor dropped = norms.isfinite().logical_not();
  if (!progress.factors.empty()) {
    const at::Tensor factors = at::cat(progress.factors);
    report.factors = to_doubles(factors);
    dropped = dropped.logical_or(factors.eq(0));
  }
  report.dropped = dropped.sum().item<int64_t>();
}

}  // namespace moonshard::train
