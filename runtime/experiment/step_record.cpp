#include "runtime/experiment/step_record.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace moonshard::train {

namespace {

Json owner_rows(const profile::OwnerBytes& owners, int64_t rest) {
  Json rows = Json::array();
  for (size_t i = 0; i < profile::kOwners; ++i) {
    if (owners[i] != 0)
      rows.push_back(Json{{"owner", profile::owner_name(static_cast<profile::Owner>(i))},
                          {"bytes", owners[i]}});
  }
  rows.push_back(Json{{"owner", "rest"}, {"bytes", rest}});
  return rows;
}

}  // namespace

Json ledger_record(const profile::LedgerReport& ledger) {
  Json phases = Json::array();
  for (const profile::LedgerPhase& phase : ledger.phases)
    phases.push_back(Json{{"phase", phase.phase},
                          {"allocated_bytes", phase.allocated_bytes},
                          {"peak_bytes", phase.peak_bytes}});
  Json timeline{{"ms", Json::array()},
                {"total", Json::array()},
                {"phase", Json::array()},
                {"owners", Json::object()}};
  std::set<size_t> seen;
  for (const profile::LedgerSample& sample : ledger.timeline)
    for (size_t i = 0; i < profile::kOwners; ++i)
      if (sample.owners[i] != 0) seen.insert(i);
  for (const profile::LedgerSample& sample : ledger.timeline) {
    timeline["ms"].push_back(std::round(sample.ms * 1000) / 1000);
    timeline["total"].push_back(sample.total_bytes);
    timeline["phase"].push_back(sample.phase);
    for (const size_t i : seen)
      timeline["owners"][profile::owner_name(static_cast<profile::Owner>(i))].push_back(
          sample.owners[i]);
  }
  return Json{{"peak_bytes", ledger.peak_bytes},
              {"peak_phase", ledger.peak_phase},
              {"rest_bytes", ledger.rest_at_peak},
              {"breakdown", owner_rows(ledger.at_peak, ledger.rest_at_peak)},
              {"after_step", owner_rows(ledger.at_end, ledger.rest_at_end)},
              {"phases", std::move(phases)},
              {"timeline", std::move(timeline)}};
}

Json comm_rows(const std::vector<profile::Span>& spans) {
  Json rows = Json::array();
  for (const profile::CollectiveTimes& times : profile::collective_times(spans))
    rows.push_back(Json{{"operation", times.operation},
                        {"count", times.count},
                        {"bytes", times.bytes},
                        {"work_ms", times.work_ms},
                        {"exposed_ms", times.exposed_ms},
                        {"overlap_percent", times.overlap_percent()}});
  return rows;
}

Json norm_histogram(const std::vector<double>& norms, double max_grad_norm) {
  constexpr int kBins = 40;
  if (norms.empty()) return Json();
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
  std::vector<int64_t> counts(edges.empty() ? 0 : edges.size() - 1);
  for (const double norm : shown) {
    const auto above = std::upper_bound(edges.begin(), edges.end(), norm);
    const auto bin = std::min<size_t>(above - edges.begin(), counts.size()) - 1;
    ++counts[bin];  // the largest may stand on the last edge
  }
  for (double& edge : edges) edge = std::exp2(edge);
  return Json{{"edges", edges},
              {"counts", counts},
              {"left_out", norms.size() - shown.size()},
              {"max_grad_norm", max_grad_norm}};
}

Json held_by_rank(const Trainer& trainer, const StepReport& report) {
  const sharding::ShardingMemory& memory = report.sharding;
  return Json{{"parameter_bytes", memory.parameters},
              {"gradient_bytes", memory.gradients},
              {"optimizer_bytes", trainer.optimizer().state_bytes()},
              {"gathered_peak_bytes", memory.whole_peak},
              {"gathered_peak_units", memory.whole_units_peak},
              {"in_flight_peak_bytes", memory.in_flight_peak}};
}

Json traffic_of(const StepReport& report) {
  Json list = Json::array();
  for (const comm::Traffic& kind : report.traffic)
    list.push_back({{"operation", kind.operation}, {"count", kind.count}, {"bytes", kind.bytes}});
  return list;
}

}  // namespace moonshard::train
