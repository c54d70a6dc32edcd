#include "runtime/experiment/measurement.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/experiment/step_record.h"
#include "runtime/models/model_cost.h"
#include "runtime/profile/phases.h"
#include "runtime/records/statistics.h"

namespace moonshard::train {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
using Clock = std::chrono::steady_clock;

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

}  // namespace

Measurement::Measurement(const ExperimentOptions& options, c10::Device device)
    : options_(options), device_(device), begun_(Clock::now()) {
  profile::reset_peak_memory(device);
}

void Measurement::add_stage(const std::string& stage) {
  const profile::MemoryReading reading = profile::read_memory(device_);
  stages_.push_back(Json{{"stage", stage},
                         {"rank", 0},
                         {"allocated_bytes", reading.allocated_bytes},
                         {"max_allocated_bytes", reading.max_allocated_bytes},
                         {"reserved_bytes", reading.reserved_bytes},
                         {"max_reserved_bytes", reading.max_reserved_bytes},
                         {"rss_bytes", reading.rss_bytes}});
}

void Measurement::end_warmup() {
  add_stage("after warmup");
  profile::reset_peak_memory(device_);
}

void Measurement::begin_measured_steps() {
  sampler_ = std::make_unique<profile::UtilizationSampler>(device_);
}

void Measurement::end_measured_steps() {
  add_stage("end");
  utilization_ = sampler_->finish();
}

void Measurement::add_step(const Trainer& trainer, const StepReport& report, bool is_warmup) {
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
  if (report.batch_size > 0) loss_ = report.loss;  // an empty draw has none
  if (options_.parallel != "none") sharding_ = sharding_row(trainer, report);
  if (is_warmup) {
    warmup_ms_.push_back(report.time_ms);
    return;
  }
  times_ms_.push_back(report.time_ms);
  clip_fractions_.push_back(report.clip_fraction);
  tokens_ += report.tokens;
  samples_ += report.batch_size;
  peak_bytes_ = std::max(peak_bytes_, report.memory.max_allocated_bytes);
  peak_reserved_bytes_ = std::max(peak_reserved_bytes_, report.memory.max_reserved_bytes);
  kept_bytes_ = std::max(kept_bytes_, report.kept_bytes);
  dropped_ += report.dropped;
}

void Measurement::add_detailed_step(const Trainer& trainer, const StepReport& report) {
  detailed_ms_ = report.time_ms;
  if (report.details == nullptr) return;
  memory_ = ledger_record(report.details->memory);
  for (const profile::LedgerPhase& phase : report.details->memory.phases) {
    stages_.push_back(Json{{"stage", phase.phase},
                           {"rank", 0},
                           {"allocated_bytes", phase.allocated_bytes},
                           {"max_allocated_bytes", phase.peak_bytes},
                           {"reserved_bytes", phase.reserved_bytes},
                           {"max_reserved_bytes", phase.max_reserved_bytes},
                           {"rss_bytes", phase.rss_bytes}});
  }
  norms_ = norm_times(report.details->spans);
  // A modelled world has only this rank's samples.
  norms_histogram_ = norm_histogram(trainer.world().is_fake() ? report.norms : report.all_norms,
                                    report.clip_bound);
  if (options_.profile == "layers" || options_.profile == "trace") {
    layers_ = layer_times(report.details->spans);
    for (Json& row : layers_) {
      for (const auto& layer : trainer.layers())
        if (layer->name == row["layer"].get<std::string>()) row["kind"] = layer->kind;
    }
  }
  if (options_.parallel != "none") communication_ = comm_rows(report.details->spans);
}

Json Measurement::time_summary() const {
  Json phases = Json::object();
  Json order = Json::array();
  for (const char* phase : profile::kPhases) {
    const auto samples = phase_samples_.find(phase);
    if (samples == phase_samples_.end()) continue;
    phases[phase] = records::to_json(records::summarize(samples->second));
    order.push_back(phase);
  }
  return Json{{"step_ms", records::to_json(records::summarize(times_ms_))},
              {"phases_ms", std::move(phases)},
              {"phase_order", std::move(order)},
              {"warmup_ms", warmup_ms_},
              {"samples_ms", times_ms_}};
}

Json Measurement::metrics(Trainer& trainer) const {
  const records::Summary time = records::summarize(times_ms_);
  const double seconds = time.mean * static_cast<double>(time.count) / 1000.0;
  Json metrics{{"avg_time_ms", time.mean},
               {"median_time_ms", time.median},
               {"min_time_ms", time.min},
               {"p95_time_ms", time.p95},
               {"iqr_time_ms", time.iqr},
               {"peak_memory_bytes", peak_bytes_},
               {"peak_memory_mb", static_cast<double>(peak_bytes_) / kMiB},
               {"peak_memory_gb", static_cast<double>(peak_bytes_) / kMiB / 1024.0},
               {"peak_reserved_bytes", peak_reserved_bytes_},
               {"rss_bytes", profile::resident_set_bytes()},
               {"tokens_per_s", seconds > 0 ? static_cast<double>(tokens_) / seconds : 0.0},
               {"samples_per_s", seconds > 0 ? static_cast<double>(samples_) / seconds : 0.0},
               {"final_loss", loss_},
               {"num_parameters", trainer.model().num_parameters()},
               {"parameter_bytes", trainer.model().parameter_bytes()},
               {"optimizer_bytes", trainer.optimizer().state_bytes()}};
  if (trainer.engine().is_private()) {
    metrics["clip_fraction"] = records::summarize(clip_fractions_).mean;
    metrics["engine_kept_bytes"] = kept_bytes_;
    metrics["dropped_samples"] = dropped_;
  }
  add_utilization(trainer, metrics);
  if (communication_.is_array()) add_communication(metrics);
  if (detailed_ms_ > 0 && time.median > 0)
    metrics["profiler_overhead_percent"] = 100 * (detailed_ms_ / time.median - 1);
  metrics["end_to_end_s"] = std::chrono::duration<double>(Clock::now() - begun_).count();
  return metrics;
}

void Measurement::add_utilization(const Trainer& trainer, Json& metrics) const {
  const double median = metrics["median_time_ms"].get<double>();
  const auto data = phase_samples_.find("data");
  if (data != phase_samples_.end() && median > 0)
    metrics["data_share_percent"] = 100 * records::summarize(data->second).median / median;
  metrics["cpu_percent"] = utilization_.cpu_percent;
  if (utilization_.gpu_percent) metrics["gpu_utilization_percent"] = *utilization_.gpu_percent;
  const double steps = static_cast<double>(times_ms_.size());
  const double own_tokens =
      steps > 0 ? static_cast<double>(tokens_) / steps / trainer.world().size() : 0;
  const double flops =
      own_tokens *
      models::model_cost(options_, options_.batch_size, options_.seq_length).flops_per_token;
  metrics["flops_per_step"] = flops;  // of this rank, as plain training would need them
  const double peak = profile::peak_flops(device_, options_.param_dtype);
  if (peak > 0 && median > 0) metrics["mfu_percent"] = 100 * flops / (median / 1000) / peak;
}

void Measurement::add_communication(Json& metrics) const {
  double work = 0, exposed = 0;
  int64_t bytes = 0;
  for (const Json& row : communication_) {
    work += row["work_ms"].get<double>();
    exposed += row["exposed_ms"].get<double>();
    bytes += row["bytes"].get<int64_t>();
  }
  metrics["comm_bytes"] = bytes;
  metrics["comm_work_ms"] = work;
  metrics["comm_exposed_ms"] = exposed;
  metrics["comm_overlap_percent"] =
      profile::CollectiveTimes{"", 0, 0, work, exposed}.overlap_percent();
  if (detailed_ms_ > 0) metrics["comm_share_percent"] = 100 * exposed / detailed_ms_;
}

Json Measurement::privacy(const Trainer& trainer) const {
  Json row = trainer.budget().record();
  const bool is_real =
      trainer.sharding_options().norm_reduce != "sum" && !trainer.world().is_fake();
  row["private_engine"] = trainer.engine().is_private() && is_real;
  if (!trainer.engine().is_private()) return row;
  row["noise_multiplier"] = trainer.clip_options().noise_multiplier;
  row["max_grad_norm"] = trainer.clip_bound();
  row["steps"] = trainer.privacy_steps();
  // Norms of samples are secret in a result that claims an epsilon.
  if (row["epsilon"].is_null() && norms_histogram_.is_object())
    row["norms_histogram"] = norms_histogram_;
  return row;
}

Json Measurement::rank_rows(const Trainer& trainer, const Json& metrics) const {
  // Every rank has the same options, hence the same figures to tell.
  std::vector<std::string> names{"peak_memory_bytes", "median_time_ms"};
  for (const char* name : {"comm_work_ms", "comm_exposed_ms", "comm_overlap_percent"})
    if (metrics.contains(name)) names.push_back(name);
  std::vector<double> own;
  for (const std::string& name : names) own.push_back(metrics.at(name).get<double>());
  const at::Tensor all = trainer.of_all_ranks(at::tensor(own, at::kDouble));
  Json rows = Json::array();
  for (int rank = 0; rank < trainer.world().size(); ++rank) {
    Json row{{"rank", rank}};
    for (size_t i = 0; i < names.size(); ++i)
      row[names[i]] = all[rank][static_cast<int64_t>(i)].item<double>();
    row["peak_memory_bytes"] = static_cast<int64_t>(row["peak_memory_bytes"].get<double>());
    rows.push_back(std::move(row));
  }
  return rows;
}

void Measurement::finish(Trainer& trainer, Json& record) {
  for (Json& stage : stages_) stage["rank"] = trainer.world().rank();
  record["metrics"] = metrics(trainer);
  record["time"] = time_summary();
  record["memory_stages"] = std::move(stages_);
  if (!memory_.is_null()) record["memory"] = std::move(memory_);
  if (!norms_.is_null()) record["norms_ms"] = std::move(norms_);
  if (!layers_.is_null()) record["layers"] = std::move(layers_);
  if (!communication_.is_null()) record["comm"] = std::move(communication_);
  record["steps"] = std::move(steps_);
  record["privacy"] = privacy(trainer);
  if (const Json& epsilon = record["privacy"]["epsilon"]; epsilon.is_number())
    record["metrics"]["epsilon"] = epsilon;
  if (trainer.data() != nullptr) {
    if (Json facts = trainer.data()->facts(); !facts.is_null()) record["data"] = std::move(facts);
  }
  if (options_.parallel == "none") return;
  record["sharding"] = std::move(sharding_);
  if (trainer.world().size() > 1 && !trainer.world().is_fake())
    record["ranks"] = rank_rows(trainer, record["metrics"]);
}

}  // namespace moonshard::train
