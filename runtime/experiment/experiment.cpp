#include "runtime/experiment/experiment.h"

#include <memory>
#include <optional>
#include <utility>

#include <ATen/Parallel.h>

#include "kernels/common/choice.h"
#include "runtime/analysis/savings.h"
#include "runtime/base/check.h"
#include "runtime/comm/world.h"
#include "runtime/core/device.h"
#include "runtime/experiment/experiment_options.h"
#include "runtime/experiment/job_parts.h"
#include "runtime/experiment/measurement.h"
#include "runtime/models/registry.h"
#include "runtime/plan/fit_check.h"
#include "runtime/privacy/plan_trial.h"
#include "runtime/profile/context.h"
#include "runtime/profile/ledger.h"
#include "runtime/profile/out_of_memory.h"
#include "runtime/profile/trace.h"
#include "runtime/records/schema_json.h"
#include "runtime/records/writer.h"
#include "runtime/sharding/wrap_policy.h"
#include "runtime/train/step_graph.h"
#include "runtime/weights/load_model.h"

namespace moonshard::experiment {
namespace {

// The options that were chosen, where they are not those that were asked for.
void record_choices(const ExperimentOptions& asked, const ExperimentOptions& options,
                    const train::Trainer& trainer, records::Result& record) {
  record.seed = static_cast<double>(options.seed);
  if (asked.target_epsilon == 0 && asked.epochs == 0) return;
  ExperimentOptions used = options;
  used.seed = asked.seed;
  used.epochs = asked.epochs;
  used.budget_steps = asked.budget_steps;
  used.noise_multiplier = trainer.clip_options().noise_multiplier;
  record.options = experiment_schema().to_json(&used);
}

void run_measured_steps(const ExperimentOptions& options, train::Trainer& trainer,
                        const StepObserver& observer, Measurement& measurement) {
  for (int64_t i = 0; i < options.warmup + options.iters; ++i) {
    const bool is_warmup = i < options.warmup;
    if (i == options.warmup) measurement.begin_measured_steps();
    const train::StepReport report = trainer.step();
    measurement.add_step(trainer, report, is_warmup);
    if (observer) observer(report, is_warmup);
    if (i + 1 == options.warmup) measurement.end_warmup();
  }
  measurement.end_measured_steps();
}

// After the measured steps, so that watching does not disturb them. They train, too, and count.
// They run one kernel at a time: beside the memory of a graph they would need more than the
// training.
void run_watched_steps(const ExperimentOptions& options, train::Trainer& trainer,
                       const FilesBeside& place, Measurement& measurement) {
  trainer.drop_graph();
  if (options.profile != "off") {
    trainer.record_details(true);
    for (int64_t i = 0; i < options.watch_steps; ++i)
      measurement.add_detailed_step(trainer, trainer.step());
    trainer.record_details(false);
  }
  if (options.profile == "trace") {
    trainer.trace(1, place.named(profile::trace_file_name(trainer.world().rank())));
    trainer.step();
  }
}

// What is known of the job before anything can fail.
void record_world(const ExperimentOptions& options, const comm::World& world,
                  records::Result& record) {
  if (options.parallel != "none") {
    record.sharding.rank = world.rank();
    record.sharding.world = world.size();
    record.sharding.fake = world.is_fake();
  }
  if (world.is_fake())
    record.modelled = fmt::format(
        "one rank of {} ran: memory and computation are measured; times of communication (comm, "
        "comm_work_ms, comm_exposed_ms) and what waits for it are modelled from link = {}",
        world.size(), options.link);
}

void run_steps(const ExperimentOptions& asked, const StepObserver& observer,
               const FilesBeside& place, std::optional<Measurement>& begun,
               records::Result& record) try {
  // Here and not earlier: the first touch of a device may find it full.
  Measurement& measurement = begun.emplace(asked, resolve_device(asked.device));
  measurement.add_stage("start");
  const auto world = comm::make_world(asked.world, asked.link);
  record_world(asked, *world, record);
  ExperimentOptions options = asked;
  weights::draw_missing_seed(options);
  profile::set_current_phase("data");
  std::unique_ptr<data::Source> source = make_source(options, *world);
  measurement.add_stage("after data");
  profile::set_current_phase("model");
  options = planned(options, source->sampling());
  auto model = make_model(options);
  if (options.whole_first) measurement.add_stage("after model creation");
  const auto trainer = make_trainer(options, std::move(model), std::move(source), world);
  record_choices(asked, options, *trainer, record);
  measurement.add_stage(options.whole_first ? "after wrapping" : "after model creation");
  profile::set_current_phase("");
  try {
    run_measured_steps(options, *trainer, observer, measurement);
    run_watched_steps(options, *trainer, place, measurement);
  } catch (const Interrupted&) {
    measurement.stop(*trainer, record);
    throw;
  }
  measurement.finish(*trainer, record);
} catch (...) {
  rethrow_memory_errors();
}

// What the options set for the whole process, while an experiment runs.
class ProcessSettings {
 public:
  explicit ProcessSettings(const ExperimentOptions& options) {
    profile::install_cpu_memory_hook();
    profile::set_cpu_memory_limit(options.memory_limit_mb << 20);
    if (options.threads > 0) at::set_num_threads(static_cast<int>(options.threads));
    if (options.kernels == "reference") references_ = std::make_unique<kernels::ReferenceOnly>();
  }
  ~ProcessSettings() { profile::set_cpu_memory_limit(0); }
  ProcessSettings(const ProcessSettings&) = delete;
  ProcessSettings& operator=(const ProcessSettings&) = delete;

 private:
  std::unique_ptr<kernels::ReferenceOnly> references_;
};

// Option memory_history: a snapshot of the end, or of the moment when memory ran out.
class Snapshot {
 public:
  Snapshot(const ExperimentOptions& options, const FilesBeside& place)
      : file_(place.named("snapshot.pickle")) {
    if (options.memory_history)
      history_ = std::make_unique<profile::MemoryHistory>(resolve_device(options.device));
  }
  void save() {
    if (history_ != nullptr) is_saved_ = history_->save(file_);
  }
  void save_first() {
    if (!is_saved_) save();
  }
  void tell(records::Result& record) const {
    if (is_saved_) record.memory_history = file_.filename().string();
    if (history_ != nullptr && !is_saved_) record.why_no_memory_history = history_->absence();
  }

 private:
  std::filesystem::path file_;
  std::unique_ptr<profile::MemoryHistory> history_;
  bool is_saved_ = false;
};

void record_out_of_memory(const OutOfMemoryError& error, const profile::OutOfMemoryWatch& watch,
                          records::Result& record) {
  record.status = "oom";
  record.error = error.what();
  record.bytes_asked = static_cast<double>(error.bytes_asked);
  const auto details = watch.seen();
  if (!details) return;
  record.phase = details->phase;
  record.bytes_asked = static_cast<double>(details->bytes_asked);
  record.bytes_free = static_cast<double>(details->bytes_free);
}

// The ledger of the step that runs out of memory once more, at that moment. Timed steps keep none,
// so the same steps are made again for it.
std::optional<profile::LedgerReport> ledger_of_failure(const ExperimentOptions& options) {
  constexpr int kMostSteps = 3;  // the second is the first that has an optimizer's state
  std::optional<profile::LedgerReport> held;
  const profile::OutOfMemoryWatch watch([&] {
    const auto context = profile::current_context();
    if (!held && context != nullptr && context->ledger != nullptr) held = context->ledger->finish();
  });
  try {
    const auto world = comm::make_world(options.world, options.link);
    ExperimentOptions again = options;
    weights::draw_missing_seed(again);
    std::unique_ptr<data::Source> source = make_source(again, *world);
    again = planned(again, source->sampling());
    auto model = make_model(again);
    const auto trainer = make_trainer(again, std::move(model), std::move(source), world);
    trainer->record_details(true);
    for (int i = 0; i < kMostSteps && !held; ++i) trainer->step();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception&) {  // expected: memory runs out again
  }
  return held;
}

// What other options save of the step's peak, by prediction: the moment at which memory ran out
// need not be that of the peak. Where nothing can be planned (an engine of a script), of what was
// held.
std::vector<records::Saving> savings_of(const ExperimentOptions& options,
                                        const records::Result& record, double ranks) {
  plan::Room room;
  room.device = resolve_device(options.device);
  room.ranks = static_cast<int>(ranks);
  for (const records::OwnedBytes& row : record.memory.breakdown)
    if (!std::isnan(row.bytes)) room.memory += row.bytes;
  if (!std::isnan(record.bytes_free)) room.memory += std::max(0.0, record.bytes_free);
  try {
    return plan::savings_within(options, room);
  } catch (const UsageError&) {
    return analysis::memory_savings({record.options, record.memory.breakdown, ranks});
  }
}

// Who held the memory, and what other options would save of it. Not with real ranks beside this
// one: they would have to run out of memory together.
void explain_out_of_memory(const ExperimentOptions& options, records::Result& record) {
  const bool has_peers = !records::is_missing(record.sharding.world) && record.sharding.world > 1 &&
                         !record.sharding.fake;
  const bool in_a_step =
      !record.phase.empty() && record.phase != "model" && record.phase != "start";
  if (options.profile == "off" || has_peers || !in_a_step) return;
  const auto ledger = ledger_of_failure(options);
  if (!ledger) return;
  record.memory = memory_at_end(*ledger, record.phase);
  const double ranks = std::isnan(record.sharding.world) ? 1 : record.sharding.world;
  record.savings = savings_of(options, record, ranks);
}

// Recorded as if memory had run out, before anything was allocated.
bool refuse_what_cannot_fit(const ExperimentOptions& options, records::Result& record) {
  const auto world = comm::make_world(options.world, options.link);
  const auto refusal = plan::refusal_or_warning(options, resolve_device(options.device), *world);
  if (!refusal) return false;
  record_world(options, *world, record);
  record.status = "oom";
  record.phase = "plan";
  record.error = refusal->text;
  record.bytes_asked = refusal->needed;
  record.bytes_free = refusal->free;
  record.memory.peak_phase = "plan";
  record.memory.breakdown = refusal->owners;
  record.memory.peak_bytes = 0;
  for (const records::OwnedBytes& row : refusal->owners) record.memory.peak_bytes += row.bytes;
  record.savings = refusal->savings;
  return true;
}

// Measured steps are alike: those that try plans of an engine, those before a graph, and the one
// that makes it, warm up.
int64_t undecided_steps(const ExperimentOptions& options) {
  using train::StepGraph;
  const bool tries = options.mode == "auto" && !options.deterministic;
  const int64_t tried = tries ? privacy::PlanTrial::kSteps : 0;
  if (options.compile == "no") return tried;
  if (options.compile == "yes") return std::max(tried, StepGraph::kEagerSteps) + 1;
  return std::max(tried, StepGraph::kMostEagerSteps) + StepGraph::kStepsOfATrial;
}

}  // namespace

ExperimentOptions resolve_experiment(const ExperimentOptions& options) {
  ExperimentOptions resolved = options;
  static_cast<models::ModelOptions&>(resolved) = weights::resolve_model(options);
  const models::Preset& preset = models::find_preset(resolved.model);
  if (resolved.batch_size == 0) resolved.batch_size = preset.batch_size;
  if (resolved.seq_length == 0) resolved.seq_length = preset.seq_length;
  resolved.seq_length = preset.family->seq_length(resolved, resolved.seq_length);
  sharding::refuse_unused_options(resolved);
  sharding::check_units(resolved, resolved);
  // A GPU that was named by its number stays that one.
  const bool on_gpu = resolve_device(options.device).is_cuda();
  if (!options.device.starts_with("cuda:")) resolved.device = on_gpu ? "cuda" : "cpu";
  if (on_gpu) resolved.warmup = std::max(resolved.warmup, undecided_steps(resolved));
  if (resolved.lr_schedule != "constant" && resolved.lr_total_steps == 0)
    resolved.lr_total_steps = resolved.warmup + resolved.iters;
  return resolved;
}

Json resolve_experiment_table(const Json& table) {
  ExperimentOptions options;
  experiment_schema().assign_all(&options, table);
  const ExperimentOptions resolved = resolve_experiment(options);
  return experiment_schema().to_json(&resolved);
}

records::Result measure_experiment(const ExperimentOptions& options, const StepObserver& observer,
                                   const FilesBeside& place) {
  const ExperimentOptions resolved = resolve_experiment(options);
  const ProcessSettings settings(resolved);
  records::Result record;
  record.schema_version = kSchemaVersion;
  record.status = "ok";
  record.created = records::timestamp_utc();
  record.options = experiment_schema().to_json(&resolved);
  if (refuse_what_cannot_fit(resolved, record)) return record;
  Snapshot snapshot(resolved, place);
  bool is_out_of_memory = false;
  {
    // While what filled the memory is still there.
    const profile::OutOfMemoryWatch watch([&] { snapshot.save_first(); });
    std::optional<Measurement> measurement;
    try {
      run_steps(resolved, observer, place, measurement, record);
      snapshot.save();
    } catch (const OutOfMemoryError& error) {
      is_out_of_memory = true;
      record_out_of_memory(error, watch, record);
      if (measurement) measurement->leave_stages(record);
    } catch (const Interrupted&) {
      profile::set_current_phase("");
      if (record.steps.empty()) throw;
      record.status = "interrupted";
      record.error = fmt::format("interrupted after {} of {} steps", record.steps.size(),
                                 resolved.warmup + resolved.iters);
      throw InterruptedExperiment(record.error, record);
    }
  }
  snapshot.tell(record);
  if (is_out_of_memory) explain_out_of_memory(resolved, record);
  profile::set_current_phase("");
  return record;
}

Json run_experiment(const ExperimentOptions& options, const StepObserver& observer,
                    const FilesBeside& place) {
  return records::json_of(measure_experiment(options, observer, place));
}

// The seed documents' result file.

Json seed_result(const Json& record) {
  const Json& options = record.at("options");
  const Json& metrics = record.at("metrics");
  const bool on_gpu = options.at("device").get<std::string>().starts_with("cuda");
  const int64_t ranks =
      record.contains("sharding") ? record.at("sharding").at("world").get<int64_t>() : 1;
  Json result{{"mode", options.at("mode")},
              {"seq_length", options.at("seq_length")},
              {"batch_size", options.at("batch_size")},
              {"total_batch_size", options.at("batch_size").get<int64_t>() * ranks},
              {"num_gpus", on_gpu ? ranks : 0},
              {"peak_memory_mb", metrics.at("peak_memory_mb")},
              {"peak_memory_gb", metrics.at("peak_memory_gb")},
              {"avg_time_ms", metrics.at("avg_time_ms")},
              {"config",
               {{"model_name", models::hub_name(options.at("model").get<std::string>())},
                {"vocab_size", options.at("vocab_size")},
                {"learning_rate", options.at("lr")},
                {"sigma", options.at("noise_multiplier")},
                {"max_grad_norm", options.at("max_grad_norm")}}}};
  // Beyond the documents' keys: the other ranks of this run were only modelled.
  if (record.contains("sharding") && record.at("sharding").at("fake").get<bool>())
    result["modelled_world"] = options.at("world");
  return result;
}

}  // namespace moonshard::experiment
