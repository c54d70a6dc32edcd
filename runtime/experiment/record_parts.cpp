#include "runtime/experiment/record_parts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>

#include "runtime/analysis/rows.h"

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

records::StepRow step_row(const train::StepReport& report, bool with_norms) {
  records::StepRow row{.step = static_cast<double>(report.step),
                       .loss = report.loss,
                       .lr = report.lr,
                       .time_ms = report.time_ms,
                       .clip_fraction = report.clip_fraction,
                       .epsilon = report.epsilon.value_or(NAN),
                       .grad_norm = report.grad_norm.value_or(NAN),
                       .phases_ms = {}};
  std::vector<double> norms;
  if (with_norms)
    for (const double norm : report.all_norms)
      if (std::isfinite(norm)) norms.push_back(norm);
  if (norms.empty()) return row;
  row.norm_p10 = analysis::quantile(norms, 0.1);
  row.norm_p50 = analysis::quantile(norms, 0.5);
  row.norm_p90 = analysis::quantile(norms, 0.9);
  return row;
}

std::vector<records::Traffic> traffic_of(const train::StepReport& report) {
  std::vector<records::Traffic> rows;
  for (const comm::Traffic& kind : report.traffic)
    rows.push_back(
        {kind.operation, static_cast<double>(kind.count), static_cast<double>(kind.bytes)});
  return rows;
}

}  // namespace moonshard::experiment
