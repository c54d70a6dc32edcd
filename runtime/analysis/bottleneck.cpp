#include "runtime/analysis/bottleneck.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/analysis/rows.h"

namespace moonshard::analysis {
namespace {

/// A rule's test returns evidence in words, or nothing. Comparisons are written so that a figure
/// that was not measured (NaN) is no evidence.
struct Rule {
  const char *name, *cause;
  std::vector<std::string> advice;
  std::string (*test)(const Row& row, const Thresholds& limit);
};

double percent_of_step(const Row& row, double ms) {
  const double step = row.metrics.median_time_ms;
  return step > 0 ? 100 * ms / step : NAN;
}

double phase_percent(const Row& row, const char* phase) {
  return percent_of_step(row, phase_median_ms(row.detail.get(), phase));
}

std::string test_communication(const Row& row, const Thresholds& limit) {
  const double share = row.metrics.comm_share_percent;
  const double used = row.metrics.gpu_utilization_percent;
  if (!(share >= limit.communication_percent) || used >= limit.utilization_percent) return "";
  const bool modelled = row.detail != nullptr && row.detail->sharding.fake;
  return fmt::format("{:.0f} % of the step is exposed communication{}{}", share,
                     modelled ? " (modelled from a link)" : "",
                     std::isnan(used) ? ", GPU utilisation not measured"
                                      : fmt::format(", GPU used {:.0f} %", used));
}

std::string test_norm_reduce(const Row& row, const Thresholds& limit) {
  const double share = phase_percent(row, "norm_reduce");
  if (!(share >= limit.norm_reduce_percent)) return "";
  return fmt::format("{:.1f} % of the step is the reduce of norms", share);
}

// Growth of memory through backward: bytes at its last moment minus those at its first.
double rise_in_backward(const records::Result* detail) {
  if (detail == nullptr) return NAN;
  const records::MemoryTimeline& timeline = detail->memory.timeline;
  double first = NAN, last = NAN;
  for (size_t i = 0; i < std::min(timeline.phase.index.size(), timeline.total.size()); ++i) {
    if (timeline.phase.names[timeline.phase.index[i]] != "backward") continue;
    if (std::isnan(first)) first = timeline.total[i];
    last = timeline.total[i];
  }
  return last - first;
}

std::string test_kept_activations(const Row& row, const Thresholds& limit) {
  if (row.mode == "none") return "";  // what rises are gradients, and there is no engine to change
  const double peak = row.metrics.peak_memory_bytes, kept = row.metrics.engine_kept_bytes;
  const double rise = rise_in_backward(row.detail.get());
  std::string text;
  if (kept >= peak * limit.kept_percent_of_peak / 100)
    text = fmt::format("the engine keeps {:.1f} MiB, {:.0f} % of the peak", kept / kMiB,
                       100 * kept / peak);
  if (rise >= peak * limit.rise_percent_of_peak / 100)
    text += fmt::format("{}memory rises by {:.1f} MiB through backward", text.empty() ? "" : ", ",
                        rise / kMiB);
  return text;
}

std::string test_norms(const Row& row, const Thresholds& limit) {
  const double share = percent_of_step(row, norms_ms(row.detail.get()));
  if (!(share >= limit.norms_percent)) return "";
  return fmt::format("norms are {:.0f} % of the step", share);
}

std::string test_layer(const Row& row, const Thresholds& limit) {
  std::vector<const records::LayerTime*> layers;
  for (size_t i = 0; row.detail && i < row.detail->layers.size(); ++i)
    if (!std::isnan(row.detail->layers[i].norm_ms)) layers.push_back(&row.detail->layers[i]);
  if (layers.size() < 3) return "";
  std::stable_sort(layers.begin(), layers.end(),
                   [](const auto* a, const auto* b) { return a->norm_ms > b->norm_ms; });
  double sum = 0;
  for (const records::LayerTime* layer : layers) sum += layer->norm_ms;
  const records::LayerTime& slowest = *layers.front();
  const double median = layers[layers.size() / 2]->norm_ms;
  if (median <= 0 || slowest.norm_ms < limit.layer_times_median * median ||
      slowest.norm_ms < sum * limit.layer_percent_of_norms / 100)
    return "";
  return fmt::format("{} ({}): {:.3g} ms, {:.0f} times the median layer, {:.0f} % of all norms",
                     slowest.layer, slowest.kind.empty() ? "?" : slowest.kind, slowest.norm_ms,
                     slowest.norm_ms / median, 100 * slowest.norm_ms / sum);
}

std::string test_second_backward(const Row& row, const Thresholds& limit) {
  const double share = phase_percent(row, "second_backward");
  if (!(share >= limit.second_backward_percent)) return "";
  return fmt::format("{:.0f} % of the step is the second backward pass", share);
}

std::string test_data(const Row& row, const Thresholds& limit) {
  const double share = row.metrics.data_share_percent;
  if (!(share >= limit.data_percent)) return "";
  return fmt::format("{:.0f} % of the step is data", share);
}

std::string test_idle(const Row& row, const Thresholds& limit) {
  const auto or_zero = [](double value) { return std::isnan(value) ? 0 : value; };
  const double used = row.metrics.gpu_utilization_percent;
  const double communication = or_zero(row.metrics.comm_share_percent);
  const double data = or_zero(row.metrics.data_share_percent);
  if (!(used < limit.utilization_percent) || communication >= limit.communication_percent ||
      data >= limit.data_percent)
    return "";
  return fmt::format("GPU used {:.0f} %, communication {:.0f} %, data {:.0f} %", used,
                     communication, data);
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> list = {
      {"communication",
       "Communication is waited for (document 001: blocking all-reduce)",
       {"overlap it: forward_prefetch = true, backward_prefetch = pre, limit_all_gathers = false "
        "(--compare grouped_collectives)",
        "send less: sharding = zero2 instead of zero3, reduce_dtype = bfloat16, no_sync = true "
        "with grad_accum",
        "a faster link between GPUs (NVLink, InfiniBand)"},
       &test_communication},
      {"norm_reduce",
       "Norms are summed over ranks and every rank waits for that (document 001)",
       {"norm_reduce = local: data-parallel ranks own different samples, their norms are whole "
        "without it (and only then private)",
        "norms for statistics travel on a group of their own, asynchronously (--compare "
        "async_norms)"},
       &test_norm_reduce},
      {"kept_activations",
       "Memory climbs through backward: what layers hand over is kept (document 001)",
       {"an engine that keeps nothing: ghost or flash instead of bookkeeping (--compare "
        "eager_cleanup, streaming_norms)",
        "checkpointing = block: a block's input instead of its insides (--compare checkpointing)",
        "engine auto with memory_budget_mb"},
       &test_kept_activations},
      {"norms",
       "Norms take a large part of the step (document 001: kernel overhead)",
       {"flash_algorithm = width at long T, input_length at short T, or auto (--compare algorithm)",
        "another tile_size (--compare tile_size)",
        "fused kernels: flash instead of ghost (--compare fusion)"},
       &test_norms},
      {"layer",
       "Some layer's norm takes more than its share (document 001)",
       {"look at its sizes in layers.csv: a wide layer wants flash_algorithm = input_length, a "
        "long sequence wants width",
        "engine auto chooses per layer"},
       &test_layer},
      {"second_backward",
       "The second backward pass",
       {"one pass: bookkeeping or flash_bookkeeping, at the cost of what they keep"},
       &test_second_backward},
      {"data",
       "The step waits for data (document 002: data loading below 10 %)",
       {"a larger batch_size; data prepared before the run"},
       &test_data},
      {"idle",
       "The GPU is idle although nothing is waited for (document 002: utilisation above 70 %)",
       {"a larger batch_size or seq_length: the work per launch is too small"},
       &test_idle}};
  return list;
}

}  // namespace

std::span<const ThresholdName> threshold_names() {
  using T = Thresholds;
  static constexpr ThresholdName kThresholds[] = {
      {"communication_percent", &T::communication_percent},
      {"utilization_percent", &T::utilization_percent},
      {"norm_reduce_percent", &T::norm_reduce_percent},
      {"norms_percent", &T::norms_percent},
      {"layer_times_median", &T::layer_times_median},
      {"layer_percent_of_norms", &T::layer_percent_of_norms},
      {"second_backward_percent", &T::second_backward_percent},
      {"kept_percent_of_peak", &T::kept_percent_of_peak},
      {"rise_percent_of_peak", &T::rise_percent_of_peak},
      {"data_percent", &T::data_percent}};
  return kThresholds;
}

BottleneckReport find_bottlenecks(const Table& table, const Thresholds& thresholds) {
  BottleneckReport report;
  bool timed_layers = false;
  for (const Rule& rule : rules()) {
    Finding finding{rule.name, rule.cause, rule.advice, {}};
    for (const Row& row : table.rows) {
      if (!row.ok()) continue;
      timed_layers = timed_layers || (row.detail && !row.detail->layers.empty());
      std::string text = rule.test(row, thresholds);
      if (!text.empty()) finding.evidence.push_back({row.label, std::move(text)});
    }
    if (!finding.evidence.empty()) report.findings.push_back(std::move(finding));
  }
  std::sort(report.findings.begin(), report.findings.end(), [](const auto& a, const auto& b) {
    if (a.evidence.size() != b.evidence.size()) return a.evidence.size() > b.evidence.size();
    return a.name < b.name;
  });
  if (!timed_layers) report.notes.push_back("no layer was timed; profile = layers does that");
  return report;
}

}  // namespace moonshard::analysis
