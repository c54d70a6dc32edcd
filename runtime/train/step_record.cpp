#include "runtime/train/step_record.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace moonshard::train {

using records::Json;

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
