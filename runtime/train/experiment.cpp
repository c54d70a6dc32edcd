#include "runtime/train/experiment.h"

#include <ATen/Parallel.h>

#include <map>

#include "runtime/core/device.h"
#include "runtime/core/memory_errors.h"
#include "runtime/models/registry.h"
#include "runtime/records/statistics.h"
#include "runtime/records/writer.h"
#include "runtime/train/step_record.h"
#include "runtime/weights/make_model.h"

namespace moonshard::train {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

Json memory_row(const char* stage, const profile::MemoryReading& reading) {
  return Json{{"stage", stage},
              {"allocated_bytes", reading.allocated_bytes},
              {"max_allocated_bytes", reading.max_allocated_bytes},
              {"reserved_bytes", reading.reserved_bytes},
              {"max_reserved_bytes", reading.max_reserved_bytes},
              {"rss_bytes", reading.rss_bytes}};
}

// Gathers what the steps report; turns it into the record at the end.
class Recorder {
 public:
  void add(const StepReport& report, bool is_warmup) {
    Json phases = Json::object();
    for (const auto& [phase, ms] : report.phases) {
      phases[phase] = ms;
      if (!is_warmup) phase_samples_[phase].push_back(ms);
    }
    steps_.push_back(Json{{"step", report.step},
                          {"warmup", is_warmup},
                          {"loss", report.loss},
                          {"lr", report.lr},
                          {"time_ms", report.time_ms},
                          {"clip_fraction", report.clip_fraction},
                          {"phases_ms", std::move(phases)}});
    loss_ = report.loss;
    if (is_warmup) return;
    times_ms_.push_back(report.time_ms);
    clip_fractions_.push_back(report.clip_fraction);
    tokens_ += report.tokens;
    samples_ += report.batch_size;
    peak_bytes_ = std::max(peak_bytes_, report.memory.max_allocated_bytes);
    kept_bytes_ = std::max(kept_bytes_, report.kept_bytes);
    dropped_ += report.dropped;
  }

  Json metrics(const Trainer& trainer, int64_t num_parameters, int64_t parameter_bytes) const {
    const records::Summary time = records::summarize(times_ms_);
    const double seconds = time.mean * static_cast<double>(time.count) / 1000.0;
    Json metrics{{"avg_time_ms", time.mean},
                 {"median_time_ms", time.median},
                 {"peak_memory_bytes", peak_bytes_},
                 {"peak_memory_mb", static_cast<double>(peak_bytes_) / kMiB},
                 {"peak_memory_gb", static_cast<double>(peak_bytes_) / kMiB / 1024.0},
                 {"tokens_per_s", seconds > 0 ? static_cast<double>(tokens_) / seconds : 0.0},
                 {"samples_per_s", seconds > 0 ? static_cast<double>(samples_) / seconds : 0.0},
                 {"final_loss", loss_},
                 {"num_parameters", num_parameters},
                 {"parameter_bytes", parameter_bytes},
                 {"optimizer_bytes", trainer.optimizer().state_bytes()}};
    if (trainer.engine().is_private()) {
      metrics["clip_fraction"] = records::summarize(clip_fractions_).mean;
      metrics["engine_kept_bytes"] = kept_bytes_;
      metrics["dropped_samples"] = dropped_;
    }
    return metrics;
  }

  Json time_summary() const {
    Json phases = Json::object();
    for (const auto& [phase, samples] : phase_samples_) {
      phases[phase] = records::to_json(records::summarize(samples));
    }
    return Json{{"step_ms", records::to_json(records::summarize(times_ms_))},
                {"phases_ms", phases}};
  }
  const Json& steps() const { return steps_; }

 private:
  Json steps_ = Json::array();
  std::vector<double> times_ms_, clip_fractions_;
  std::map<std::string, std::vector<double>> phase_samples_;
  int64_t tokens_ = 0, samples_ = 0, peak_bytes_ = 0, kept_bytes_ = 0, dropped_ = 0;
  double loss_ = 0;
};

// What each rank holds at the end of a step, for the table of document 003 and the like.
Json sharding_row(const Trainer& trainer, const StepReport& report) {
  Json row{{"rank", trainer.world().rank()},
           {"world", trainer.world().size()},
           {"fake", trainer.world().is_fake()},
           {"transport", trainer.parallel().transport()},
           {"units", trainer.parallel().unit_names()}};
  row.update(held_by_rank(trainer, report));
  row["traffic"] = traffic_of(report);
  return row;
}

Json privacy_row(const Trainer& trainer) {
  const bool mixes_norms = trainer.sharding_options().norm_reduce == "sum";
  const bool fake = trainer.world().is_fake();
  return {
      {"private_engine", trainer.engine().is_private() && !mixes_norms && !fake},
      {"epsilon", nullptr},
      {"why_no_epsilon",
       mixes_norms ? "norm_reduce = sum mixes samples of different ranks: for timing, not private"
       : fake      ? "world = fake: the other ranks are only modelled, nothing is trained"
                   : "synthetic data and fixed batches: no privacy claim is made"}};
}

void run_steps(const ExperimentOptions& options, const StepObserver& observer, Json& record) {
  const c10::Device device = resolve_device(options.device);
  Json memory = Json::array();
  profile::reset_peak_memory(device);
  memory.push_back(memory_row("start", profile::read_memory(device)));
  const auto world = comm::make_world(options.world, options.link);
  ExperimentOptions build = options;
  // Each rank then draws or reads its own part alone: the whole model never exists anywhere.
  build.deferred = options.parallel == "fsdp";
  std::shared_ptr<models::Model> model = weights::make_model(build);
  Trainer trainer(
      model, options, options,
      std::make_unique<data::SyntheticData>(model->options(), options.batch_size,
                                            options.seq_length, world->rank(), world->size()),
      options, options, world);
  memory.push_back(memory_row("after model creation", profile::read_memory(device)));
  Recorder recorder;
  Json sharding;
  for (int64_t i = 0; i < options.warmup + options.iters; ++i) {
    const bool is_warmup = i < options.warmup;
    const StepReport report = trainer.step();
    recorder.add(report, is_warmup);
    if (observer) observer(report, is_warmup);
    if (options.parallel != "none") sharding = sharding_row(trainer, report);
    if (i + 1 == options.warmup) {
      memory.push_back(memory_row("after warmup", profile::read_memory(device)));
      profile::reset_peak_memory(device);
    }
  }
  memory.push_back(memory_row("end", profile::read_memory(device)));
  record["metrics"] = recorder.metrics(trainer, model->num_parameters(), model->parameter_bytes());
  record["time"] = recorder.time_summary();
  record["memory_stages"] = std::move(memory);
  record["steps"] = recorder.steps();
  record["privacy"] = privacy_row(trainer);
  if (options.parallel != "none") record["sharding"] = std::move(sharding);
}

}  // namespace

const OptionSchema& experiment_schema() {
  static const OptionSchema schema = [] {
    using T = ExperimentOptions;
    OptionSchema s("experiment");
    models::add_model_options<T>(s);
    privacy::add_clip_options<T>(s);
    optim::add_optimizer_options<T>(s);
    add_step_options<T>(s);
    sharding::add_sharding_options<T>(s);
    s.integer<T>("nproc", &T::nproc, 1, 4096,
                 "ranks on this machine; parallel says what they share");
    s.integer<T>("batch_size", &T::batch_size, 0, 1e9,
                 "samples per micro-batch and rank; 0 takes the model preset's");
    s.integer<T>("seq_length", &T::seq_length, 0, 1e8,
                 "tokens per sample; 0 takes the model preset's")
        .aliases = {"seq_len"};
    s.integer<T>("iters", &T::iters, 1, 1e9, "measured steps").aliases = {"num_iter", "num_iters"};
    s.integer<T>("warmup", &T::warmup, 0, 1e9, "steps before measuring; recorded apart").aliases = {
        "warmup_iter", "warmup_iters"};
    s.integer<T>("threads", &T::threads, 0, 4096, "CPU threads; 0 takes all cores");
    s.integer<T>("memory_limit_mb", &T::memory_limit_mb, 0, 1e9,
                 "cap on host tensors, beyond it the point is out of memory; 0 means none");
    return s;
  }();
  return schema;
}

ExperimentOptions resolve_experiment(const ExperimentOptions& options) {
  ExperimentOptions resolved = options;
  static_cast<models::ModelOptions&>(resolved) = weights::resolve_model(options);
  const models::Preset& preset = models::find_preset(resolved.model);
  if (resolved.batch_size == 0) resolved.batch_size = preset.batch_size;
  if (resolved.seq_length == 0) resolved.seq_length = preset.seq_length;
  // An image's patches are what they are; vectors have no tokens, but sweeps may name some.
  if (resolved.task == "denoise")
    resolved.seq_length = models::tokens_per_sample(resolved, resolved.seq_length);
  resolved.device = resolve_device(options.device).is_cuda() ? "cuda" : "cpu";
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

Json run_experiment(const ExperimentOptions& options, const StepObserver& observer) {
  const ExperimentOptions resolved = resolve_experiment(options);
  profile::install_cpu_memory_hook();
  profile::set_cpu_memory_limit(resolved.memory_limit_mb << 20);
  if (resolved.threads > 0) at::set_num_threads(static_cast<int>(resolved.threads));
  Json record{{"schema_version", records::kSchemaVersion},
              {"status", "ok"},
              {"created", records::timestamp_utc()},
              {"options", experiment_schema().to_json(&resolved)}};
  try {
    try {
      run_steps(resolved, observer, record);
    } catch (...) {
      profile::set_cpu_memory_limit(0);
      rethrow_memory_errors();
    }
  } catch (const OutOfMemoryError& error) {
    record["status"] = "oom";
    record["error"] = error.what();
    record["bytes_asked"] = error.bytes_asked;
  }
  profile::set_cpu_memory_limit(0);
  return record;
}

Json seed_result(const Json& record) {
  const Json& options = record.at("options");
  const Json& metrics = record.at("metrics");
  const bool on_gpu = options.at("device") == "cuda";
  const int64_t ranks =
      record.contains("sharding") ? record.at("sharding").at("world").get<int64_t>() : 1;
  return Json{{"mode", options.at("mode")},
              {"seq_length", options.at("seq_length")},
              {"batch_size", options.at("batch_size")},
              {"total_batch_size", options.at("batch_size").get<int64_t>() * ranks},
              {"num_gpus", on_gpu ? ranks : 0},
              {"peak_memory_mb", metrics.at("peak_memory_mb")},
              {"peak_memory_gb", metrics.at("peak_memory_gb")},
              {"avg_time_ms", metrics.at("avg_time_ms")},
              {"config",
               {{"model_name", options.at("model")},
                {"vocab_size", options.at("vocab_size")},
                {"learning_rate", options.at("lr")},
                {"sigma", options.at("noise_multiplier")},
                {"max_grad_norm", options.at("max_grad_norm")}}}};
}

}  // namespace moonshard::train
