#include "runtime/experiment/measurement.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "runtime/analysis/rows.h"
#include "runtime/models/model_cost.h"
#include "runtime/models/registry.h"
#include "runtime/profile/phases.h"

namespace moonshard::experiment {
namespace {

double numel_of(const models::Parameter& parameter) {
  return static_cast<double>(parameter.value.numel());
}

// The weight's first and other dimensions, as a linear layer has them.
void add_features(const models::ParamLayer& layer, records::LayerTime& row) {
  const at::Tensor& weight = layer.weight->value;
  if (weight.dim() == 0 || weight.size(0) == 0) return;
  const auto first = static_cast<double>(weight.size(0));
  const double others = static_cast<double>(weight.numel()) / first;
  const bool is_table =
      layer.kind == models::kinds::kEmbedding || layer.kind == models::kinds::kPositionTable;
  row.in_features = is_table || weight.dim() == 1 ? first : others;
  row.out_features = is_table ? others : first;
}

constexpr double kMiB = 1024.0 * 1024.0;
using Clock = std::chrono::steady_clock;

// Members that each rank reports separately in a job of several.
constexpr double records::RankRow::*kRankFigures[] = {
    &records::RankRow::peak_memory_bytes, &records::RankRow::median_time_ms,
    &records::RankRow::comm_work_ms, &records::RankRow::comm_exposed_ms,
    &records::RankRow::comm_overlap_percent};

}  // namespace

Measurement::Measurement(const ExperimentOptions& options, c10::Device device)
    : options_(options), device_(device), begun_(Clock::now()) {
  // Before this process uses the device.
  const profile::MachineLoad load = profile::machine_load(device);
  parts_.load.cores = load.cores;
  parts_.load.load_before = load.load_average.value_or(NAN);
  parts_.load.gpu_percent_before = load.gpu_percent.value_or(NAN);
  if (load.other_gpu_processes)
    parts_.load.gpu_processes = static_cast<double>(*load.other_gpu_processes);
  profile::reset_peak_memory(device);
}

void Measurement::add_stage(const std::string& stage) {
  const profile::MemoryReading reading = profile::read_memory(device_);
  parts_.memory_stages.push_back(
      {.stage = stage,
       .rank = 0,
       .allocated_bytes = static_cast<double>(reading.allocated_bytes),
       .max_allocated_bytes = static_cast<double>(reading.max_allocated_bytes),
       .reserved_bytes = static_cast<double>(reading.reserved_bytes),
       .max_reserved_bytes = static_cast<double>(reading.max_reserved_bytes),
       .rss_bytes = static_cast<double>(reading.rss_bytes)});
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
  sampler_.reset();
  parts_.load.other_cpu_percent = utilization_.other_cpu_percent.value_or(NAN);
  parts_.load.load_after = profile::machine_load(device_).load_average.value_or(NAN);
}

void Measurement::add_step(const train::Trainer& trainer, const train::StepReport& report,
                           bool is_warmup) {
  records::StepRow row = step_row(report, /*with_norms=*/false);
  row.warmup = is_warmup;
  for (const auto& [phase, ms] : report.phases) {
    row.phases_ms.push_back({phase, ms});
    if (!is_warmup) phase_samples_[phase].push_back(ms);
  }
  parts_.steps.push_back(std::move(row));
  if (report.batch_size > 0) loss_ = report.loss;  // an empty draw has none
  if (options_.parallel != "none") parts_.sharding = sharding_part(trainer, report);
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

void Measurement::add_detailed_step(const train::Trainer& trainer,
                                    const train::StepReport& report) {
  if (report.details == nullptr) {
    detailed_ms_ = report.time_ms;
    return;
  }
  add_watched_memory(report.details->memory);
  if (watched_.size() > 1) return;  // of several watched steps the first has all other figures
  detailed_ms_ = report.time_ms;
  squares_before_sum_ = report.squares_before_sum;
  for (const double norm : report.squares_before_sum.empty() ? std::vector<double>() : report.norms)
    squares_after_sum_.push_back(norm * norm);
  for (const profile::LedgerPhase& phase : report.details->memory.phases) {
    parts_.memory_stages.push_back(
        {.stage = phase.phase,
         .rank = 0,
         .allocated_bytes = static_cast<double>(phase.allocated_bytes),
         .max_allocated_bytes = static_cast<double>(phase.peak_bytes),
         .reserved_bytes = static_cast<double>(phase.reserved_bytes),
         .max_reserved_bytes = static_cast<double>(phase.max_reserved_bytes),
         .rss_bytes = static_cast<double>(phase.rss_bytes)});
  }
  parts_.norms_ms = train::norm_times(report.details->spans);
  // A modelled world has only this rank's samples.
  norms_histogram_ = norm_histogram(trainer.world().is_fake() ? report.norms : report.all_norms,
                                    report.clip_bound);
  if (options_.profile == "layers" || options_.profile == "trace") {
    parts_.layers = train::layer_times(report.details->spans);
    add_layer_sizes(trainer);
  }
  if (options_.parallel != "none")
    parts_.comm = comm_rows(report.details->spans, trainer.world().is_fake());
}

// The step with the highest peak is the one that is explained.
void Measurement::add_watched_memory(const profile::LedgerReport& ledger) {
  records::MemoryPart part = memory_part(ledger);
  watched_.push_back(std::move(part.timeline));
  watched_bytes_ += ledger.mean_bytes;
  if (watched_.size() == 1 || part.peak_bytes > parts_.memory.peak_bytes)
    parts_.memory = std::move(part);
}

// A row is a layer, or a block whose layers share a launch: "model.layers.3" is the sum of all that
// begin so.
void Measurement::add_layer_sizes(const train::Trainer& trainer) {
  const double positions = static_cast<double>(
      options_.batch_size * models::tokens_per_sample(options_, options_.seq_length));
  for (records::LayerTime& row : parts_.layers) {
    for (const auto& layer : trainer.layers()) {
      const bool is_row = layer->name == row.layer;
      if (!is_row && !layer->name.starts_with(row.layer + ".")) continue;
      const double before = std::isnan(row.parameters) ? 0 : row.parameters;
      double own = 0;
      for (const models::Parameter* parameter : {layer->weight, layer->bias})
        if (parameter != nullptr && parameter->trainable) own += numel_of(*parameter);
      row.parameters = before + own;
      row.tokens = layer->one_position ? static_cast<double>(options_.batch_size) : positions;
      if (!is_row) continue;
      row.kind = layer->kind;
      add_features(*layer, row);
    }
  }
}

records::TimePart Measurement::time_summary() const {
  records::TimePart time;
  time.step_ms = analysis::summarize(times_ms_);
  for (const auto& phase : profile::kPhases) {
    const auto samples = phase_samples_.find(phase.name);
    if (samples == phase_samples_.end()) continue;
    time.phases_ms.push_back({phase.name, analysis::summarize(samples->second)});
    time.phase_order.push_back(phase.name);
  }
  time.warmup_ms = warmup_ms_;
  time.samples_ms = times_ms_;
  return time;
}

void Measurement::fill_metrics(train::Trainer& trainer, records::Metrics& metrics) const {
  const records::Statistics time = analysis::summarize(times_ms_);
  const double seconds = time.mean * time.count / 1000.0;
  const auto peak = static_cast<double>(peak_bytes_);
  metrics.avg_time_ms = time.mean;
  metrics.median_time_ms = time.median;
  metrics.min_time_ms = time.min;
  metrics.p95_time_ms = time.p95;
  metrics.iqr_time_ms = time.iqr;
  metrics.peak_memory_bytes = peak;
  metrics.peak_memory_mb = peak / kMiB;
  metrics.peak_memory_gb = peak / kMiB / 1024.0;
  metrics.peak_reserved_bytes = static_cast<double>(peak_reserved_bytes_);
  metrics.rss_bytes = static_cast<double>(profile::resident_set_bytes());
  metrics.tokens_per_s = seconds > 0 ? static_cast<double>(tokens_) / seconds : 0.0;
  metrics.samples_per_s = seconds > 0 ? static_cast<double>(samples_) / seconds : 0.0;
  metrics.final_loss = loss_;
  metrics.num_parameters = static_cast<double>(trainer.model().num_parameters());
  metrics.parameter_bytes = static_cast<double>(trainer.model().parameter_bytes());
  metrics.optimizer_bytes = static_cast<double>(trainer.optimizer().state_bytes());
  if (trainer.engine().is_private()) {
    metrics.clip_fraction = analysis::summarize(clip_fractions_).mean;
    metrics.engine_kept_bytes = static_cast<double>(kept_bytes_);
    metrics.dropped_samples = static_cast<double>(dropped_);
  }
  fill_utilization(trainer, metrics);
  if (options_.parallel != "none" && detailed_ms_ > 0) fill_communication(metrics);
  if (detailed_ms_ > 0 && time.median > 0)
    metrics.profiler_overhead_percent = 100 * (detailed_ms_ / time.median - 1);
  metrics.end_to_end_s = std::chrono::duration<double>(Clock::now() - begun_).count();
}

void Measurement::fill_utilization(const train::Trainer& trainer, records::Metrics& metrics) const {
  const double median = metrics.median_time_ms;
  const auto data = phase_samples_.find("data");
  if (data != phase_samples_.end() && median > 0)
    metrics.data_share_percent = 100 * analysis::summarize(data->second).median / median;
  metrics.cpu_percent = utilization_.cpu_percent;
  if (utilization_.gpu_percent) metrics.gpu_utilization_percent = *utilization_.gpu_percent;
  const double steps = static_cast<double>(times_ms_.size());
  const double own_tokens =
      steps > 0 ? static_cast<double>(tokens_) / steps / trainer.world().size() : 0;
  // Of this rank, as plain training would need them.
  metrics.flops_per_step =
      own_tokens *
      models::model_cost(options_, options_.batch_size, options_.seq_length).flops_per_token;
  const double peak = profile::peak_flops(device_, options_.param_dtype);
  if (peak > 0 && median > 0)
    metrics.mfu_percent = 100 * metrics.flops_per_step / (median / 1000) / peak;
}

void Measurement::fill_communication(records::Metrics& metrics) const {
  double work = 0, exposed = 0, bytes = 0;
  for (const records::Collective& row : parts_.comm) {
    work += row.work_ms;
    exposed += row.exposed_ms;
    bytes += row.bytes;
  }
  metrics.comm_bytes = bytes;
  metrics.comm_work_ms = work;
  metrics.comm_exposed_ms = exposed;
  metrics.comm_overlap_percent =
      profile::CollectiveTimes{"", 0, 0, work, exposed}.overlap_percent();
  metrics.comm_share_percent = 100 * exposed / detailed_ms_;
}

records::PrivacyPart Measurement::privacy(const train::Trainer& trainer) const {
  records::PrivacyPart part = trainer.account().record();
  const bool is_real =
      trainer.sharding_options().norm_reduce != "sum" && !trainer.world().is_fake();
  part.private_engine = trainer.engine().is_private() && is_real;
  if (!trainer.engine().is_private()) return part;
  part.noise_multiplier = trainer.clip_options().noise_multiplier;
  part.max_grad_norm = trainer.clip_bound();
  part.steps = static_cast<double>(trainer.privacy_steps());
  // Norms of samples are secret in a result that claims an epsilon.
  if (std::isnan(part.epsilon)) part.norms_histogram = norms_histogram_;
  return part;
}

std::vector<records::RankRow> Measurement::rank_rows(const train::Trainer& trainer,
                                                     const records::Metrics& metrics) const {
  // Every rank has the same options, hence the same figures to tell.
  const records::RankRow mine{.rank = 0,
                              .peak_memory_bytes = metrics.peak_memory_bytes,
                              .median_time_ms = metrics.median_time_ms,
                              .comm_work_ms = metrics.comm_work_ms,
                              .comm_exposed_ms = metrics.comm_exposed_ms,
                              .comm_overlap_percent = metrics.comm_overlap_percent};
  std::vector<double> own;
  for (const auto figure : kRankFigures) own.push_back(mine.*figure);
  const at::Tensor all = trainer.of_all_ranks(at::tensor(own, at::kDouble));
  std::vector<records::RankRow> rows;
  for (int rank = 0; rank < trainer.world().size(); ++rank) {
    records::RankRow row;
    row.rank = rank;
    for (size_t i = 0; i < own.size(); ++i)
      row.*kRankFigures[i] = all[rank][static_cast<int64_t>(i)].item<double>();
    rows.push_back(row);
  }
  return rows;
}

// What is to be seen where ranks disagree: norms before and after the sum, of every rank.
std::vector<records::NormSum> Measurement::norm_sums(const train::Trainer& trainer) const {
  if (squares_before_sum_.empty()) return {};
  const bool is_alone = trainer.world().is_fake();
  std::vector<double> own = squares_before_sum_;
  own.insert(own.end(), squares_after_sum_.begin(), squares_after_sum_.end());
  const at::Tensor mine = at::tensor(own, at::kDouble);
  // As many samples on every rank: the sum has checked that.
  const at::Tensor all = is_alone ? mine.unsqueeze(0) : trainer.of_all_ranks(mine);
  const int64_t count = static_cast<int64_t>(squares_before_sum_.size());
  std::vector<records::NormSum> rows;
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    const at::Tensor row = all[rank].contiguous();
    const double* first = row.const_data_ptr<double>();
    rows.push_back({static_cast<double>(is_alone ? trainer.world().rank() : rank),
                    {first, first + count},
                    {first + count, first + 2 * count}});
  }
  return rows;
}

void Measurement::leave_stages(records::Result& record) {
  record.memory_stages = parts_.memory_stages;
  record.load = parts_.load;
}

void Measurement::stop(train::Trainer& trainer, records::Result& record) {
  const bool has_peers = trainer.world().size() > 1 && !trainer.world().is_fake();
  if (times_ms_.empty() || has_peers) {
    leave_stages(record);
    record.steps = parts_.steps;
    return;
  }
  if (sampler_ != nullptr) end_measured_steps();
  finish(trainer, record);
}

void Measurement::finish(train::Trainer& trainer, records::Result& record) {
  for (records::MemoryStage& stage : parts_.memory_stages) stage.rank = trainer.world().rank();
  record.memory_stages = std::move(parts_.memory_stages);
  record.memory = std::move(parts_.memory);
  if (!watched_.empty()) {
    record.metrics.avg_memory_bytes =
        std::floor(watched_bytes_ / static_cast<double>(watched_.size()));
    record.memory.timeline = joined_timelines(std::move(watched_));
  }
  record.norms_ms = parts_.norms_ms;
  record.layers = std::move(parts_.layers);
  record.steps = std::move(parts_.steps);
  record.sharding = std::move(parts_.sharding);
  fill_metrics(trainer, record.metrics);
  record.comm = std::move(parts_.comm);
  record.norm_sum = norm_sums(trainer);
  record.load = parts_.load;
  record.time = time_summary();
  record.privacy = privacy(trainer);
  record.metrics.epsilon = record.privacy.epsilon;
  if (trainer.data() != nullptr) record.data = trainer.data()->facts();
  const bool has_peers = trainer.world().size() > 1 && !trainer.world().is_fake();
  if (options_.parallel != "none" && has_peers) record.ranks = rank_rows(trainer, record.metrics);
}

}  // namespace moonshard::experiment
