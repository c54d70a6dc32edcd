#include "runtime/experiment/measurement.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <ATen/ATen.h>

#include "runtime/analysis/rows.h"
#include "runtime/models/model_cost.h"
#include "runtime/models/registry.h"
#include "runtime/profile/phases.h"

namespace moonshard::experiment {
namespace {

std::vector<records::OwnedBytes> owner_rows(const profile::OwnerBytes& owners, int64_t rest) {
  std::vector<records::OwnedBytes> rows;
  for (size_t i = 0; i < profile::kOwners; ++i) {
    if (owners[i] != 0)
      rows.push_back(
          {profile::owner_name(static_cast<profile::Owner>(i)), static_cast<double>(owners[i])});
  }
  rows.push_back({"rest", static_cast<double>(rest)});
  return rows;
}

records::MemoryTimeline timeline_of(const std::vector<profile::LedgerSample>& samples) {
  records::MemoryTimeline timeline;
  std::set<size_t> seen;
  for (const profile::LedgerSample& sample : samples)
    for (size_t i = 0; i < profile::kOwners; ++i)
      if (sample.owners[i] != 0) seen.insert(i);
  for (const size_t i : seen)
    timeline.owners.push_back({profile::owner_name(static_cast<profile::Owner>(i)), {}});
  for (const profile::LedgerSample& sample : samples) {
    timeline.ms.push_back(std::round(sample.ms * 1000) / 1000);
    timeline.total.push_back(static_cast<double>(sample.total_bytes));
    timeline.phase.add(sample.phase);
    auto owner = timeline.owners.begin();
    for (const size_t i : seen) (owner++)->value.push_back(static_cast<double>(sample.owners[i]));
  }
  return timeline;
}

// Of a list in order of time: indices, the largest of each of `most` intervals, first and last
// among them.
std::vector<size_t> largest_of_each_interval(const std::vector<double>& values, size_t most) {
  std::vector<size_t> kept;
  const size_t width = std::max<size_t>(1, (values.size() + most - 1) / std::max<size_t>(most, 1));
  for (size_t first = 0; first < values.size(); first += width) {
    const size_t end = std::min(first + width, values.size());
    const auto largest = std::max_element(values.begin() + static_cast<std::ptrdiff_t>(first),
                                          values.begin() + static_cast<std::ptrdiff_t>(end));
    kept.push_back(static_cast<size_t>(largest - values.begin()));
  }
  if (!kept.empty() && kept.back() + 1 != values.size()) kept.push_back(values.size() - 1);
  return kept;
}

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

records::MemoryPart memory_part(const profile::LedgerReport& ledger) {
  records::MemoryPart part;
  part.peak_bytes = static_cast<double>(ledger.peak_bytes);
  part.peak_phase = ledger.peak_phase;
  part.rest_bytes = static_cast<double>(ledger.rest_at_peak);
  part.breakdown = owner_rows(ledger.at_peak, ledger.rest_at_peak);
  part.after_step = owner_rows(ledger.at_end, ledger.rest_at_end);
  for (const profile::LedgerPhase& phase : ledger.phases)
    part.phases.push_back({phase.phase, static_cast<double>(phase.allocated_bytes),
                           static_cast<double>(phase.peak_bytes)});
  part.timeline = timeline_of(ledger.timeline);
  return part;
}

records::MemoryPart memory_at_end(const profile::LedgerReport& ledger, const std::string& phase) {
  records::MemoryPart part = memory_part(ledger);
  part.breakdown = part.after_step;
  part.after_step.clear();
  part.peak_phase = phase;
  part.rest_bytes = static_cast<double>(ledger.rest_at_end);
  part.peak_bytes = 0;
  for (const records::OwnedBytes& row : part.breakdown) part.peak_bytes += row.bytes;
  return part;
}

records::MemoryTimeline joined_timelines(std::vector<records::MemoryTimeline> steps) {
  if (steps.size() == 1) return std::move(steps[0]);
  records::MemoryTimeline all;
  for (const records::MemoryTimeline& step : steps) {
    for (const auto& owner : step.owners) {
      const auto known = std::find_if(all.owners.begin(), all.owners.end(),
                                      [&](const auto& other) { return other.name == owner.name; });
      if (known == all.owners.end()) all.owners.push_back({owner.name, {}});
    }
  }
  const size_t most = profile::kTimelineSamples / std::max<size_t>(steps.size(), 1);
  double begin = 0;
  for (const records::MemoryTimeline& step : steps) {
    all.step_begins_ms.push_back(begin);
    for (const size_t i : largest_of_each_interval(step.total, most)) {
      all.ms.push_back(begin + step.ms[i]);
      all.total.push_back(step.total[i]);
      all.phase.add(step.phase.names[step.phase.index[i]]);
      for (auto& owner : all.owners) {
        const auto own = std::find_if(step.owners.begin(), step.owners.end(),
                                      [&](const auto& other) { return other.name == owner.name; });
        owner.value.push_back(own == step.owners.end() ? 0 : own->value[i]);
      }
    }
    begin = all.ms.empty() ? 0 : all.ms.back();
  }
  return all;
}

std::vector<records::Collective> comm_rows(const std::vector<profile::Span>& spans, bool modelled) {
  std::vector<records::Collective> rows;
  for (const profile::CollectiveTimes& times : profile::collective_times(spans))
    rows.push_back({times.operation, static_cast<double>(times.count),
                    static_cast<double>(times.bytes), times.work_ms, times.exposed_ms,
                    times.overlap_percent(), modelled});
  return rows;
}

records::NormHistogram norm_histogram(const std::vector<double>& norms, double max_grad_norm) {
  constexpr int kBins = 40;
  if (norms.empty()) return {};
  std::vector<double> shown;
  for (const double norm : norms)
    if (norm > 0 && norm < 1e300) shown.push_back(std::log2(norm));
  std::vector<double> edges;  // as logarithms
  if (!shown.empty()) {
    const auto [low, high] = std::minmax_element(shown.begin(), shown.end());
    const int first = static_cast<int>(std::floor(*low));
    const int octaves = std::max(1, static_cast<int>(std::ceil(*high)) - first);
    // Powers of two stay edges: several bins to one, or one bin over several.
    const int fine = std::max(1, kBins / octaves), coarse = (octaves + kBins - 1) / kBins;
    const int bins = coarse > 1 ? (octaves + coarse - 1) / coarse : octaves * fine;
    for (int i = 0; i <= bins; ++i) edges.push_back(first + static_cast<double>(i) * coarse / fine);
  }
  std::vector<double> counts(edges.empty() ? 0 : edges.size() - 1);
  for (const double norm : shown) {
    const auto above = std::upper_bound(edges.begin(), edges.end(), norm);
    const auto bin = std::min<size_t>(above - edges.begin(), counts.size()) - 1;
    ++counts[bin];  // the largest may stand on the last edge
  }
  for (double& edge : edges) edge = std::exp2(edge);
  return {.edges = edges,
          .counts = counts,
          .left_out = static_cast<double>(norms.size() - shown.size()),
          .max_grad_norm = max_grad_norm};
}

records::RankMemory held_by_rank(const train::Trainer& trainer, const train::StepReport& report) {
  const sharding::ShardingMemory& memory = report.sharding;
  return {.parameter_bytes = static_cast<double>(memory.parameters),
          .gradient_bytes = static_cast<double>(memory.gradients),
          .optimizer_bytes = static_cast<double>(trainer.optimizer().state_bytes()),
          .gathered_peak_bytes = static_cast<double>(memory.whole_peak),
          .gathered_peak_units = static_cast<double>(memory.whole_units_peak),
          .in_flight_peak_bytes = static_cast<double>(memory.in_flight_peak)};
}

records::ShardingPart sharding_part(const train::Trainer& trainer,
                                    const train::StepReport& report) {
  return {.rank = static_cast<double>(trainer.world().rank()),
          .world = static_cast<double>(trainer.world().size()),
          .fake = trainer.world().is_fake(),
          .transport = trainer.parallel().transport(),
          .units = trainer.parallel().unit_names(),
          .held = held_by_rank(trainer, report),
          .traffic = traffic_of(report)};
}

std::vector<records::Traffic> traffic_of(const train::StepReport& report) {
  std::vector<records::Traffic> rows;
  for (const comm::Traffic& kind : report.traffic)
    rows.push_back(
        {kind.operation, static_cast<double>(kind.count), static_cast<double>(kind.bytes)});
  return rows;
}

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
  parts_.load.other_cpu_percent = utilization_.other_cpu_percent.value_or(NAN);
  parts_.load.load_after = profile::machine_load(device_).load_average.value_or(NAN);
}

void Measurement::add_step(const train::Trainer& trainer, const train::StepReport& report,
                           bool is_warmup) {
  records::StepRow row{.step = static_cast<double>(report.step),
                       .warmup = is_warmup,
                       .loss = report.loss,
                       .lr = report.lr,
                       .time_ms = report.time_ms,
                       .clip_fraction = report.clip_fraction,
                       .phases_ms = {}};
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
