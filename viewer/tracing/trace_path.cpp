#include "viewer/tracing/trace_path.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "runtime/tracing/critical_path.h"
#include "runtime/tracing/trace_reader.h"
#include "runtime/tracing/what_if.h"
#include "viewer/tracing/trace.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kShownNames = 40;

std::vector<TracePathSum> sums_of(const std::vector<tracing::PathPart>& parts, size_t most) {
  std::vector<TracePathSum> sums;
  for (const tracing::PathPart& part : parts) {
    if (sums.size() == most) break;
    sums.push_back({part.name, part.us});
  }
  return sums;
}

tracing::WhatIf scaled(tracing::RuleSubject subject, const std::string& glob, double factor) {
  tracing::WhatIf changes;
  changes.rules.push_back({subject, glob, factor});
  return changes;
}

bool has(const std::vector<tracing::PathPart>& parts, const std::string& name) {
  return std::ranges::any_of(parts, [&](const auto& part) { return part.name == name; });
}

class Forecasts {
 public:
  Forecasts(const tracing::TraceData& trace, const tracing::StepWindow& step)
      : trace_(trace), step_(step) {}

  // What the trace cannot answer is left out.
  void add(const std::string& change, const tracing::WhatIf& asked) {
    try {
      const tracing::WhatIfResult result = tracing::what_if(trace_, step_, asked);
      list.push_back(
          {change, result.notes.empty() ? "" : result.notes.front(), result.predicted_us});
    } catch (const Error&) {
    }
  }

  std::vector<TraceForecast> list;

 private:
  const tracing::TraceData& trace_;
  const tracing::StepWindow& step_;
};

std::vector<TraceForecast> forecasts_of(const tracing::TraceData& trace,
                                        const tracing::StepWindow& step,
                                        const tracing::CriticalPath& path) {
  using tracing::RuleSubject;
  Forecasts all(trace, step);
  tracing::WhatIf without_norms;
  without_norms.norms = true;
  if (has(path.phases, "clip_factors")) all.add("norms cost nothing", without_norms);
  const bool sends =
      has(path.kinds, tracing::kPathKinds[static_cast<size_t>(tracing::PathKind::Communication)]) ||
      std::ranges::any_of(trace.events, [](const tracing::TraceEvent& event) {
        return event.kind == tracing::EventKind::Communication;
      });
  if (sends) all.add("links twice as fast", scaled(RuleSubject::Kind, "communication", 0.5));
  const bool has_device = std::ranges::any_of(
      trace.lanes, [](const tracing::EventLane& lane) { return lane.is_device; });
  if (has_device) all.add("the host costs nothing", scaled(RuleSubject::Kind, "host", 0));
  for (const tracing::PathPart& part : path.names) {
    if (part.name.empty() || part.name.front() == '(') continue;
    if (part.name.find_first_of("*?[") != std::string::npos) continue;  // would be a glob
    all.add("without " + part.name, scaled(RuleSubject::Name, part.name, 0));
    break;
  }
  return std::move(all.list);
}

}  // namespace

TracePath read_path(const std::filesystem::path& file, const ReadControl& control) {
  const tracing::TraceData trace = tracing::read_events(file, control);
  const std::vector<tracing::StepWindow> steps = tracing::find_steps(trace);
  const tracing::StepWindow& step = steps.back();
  const tracing::HostLabels labels = tracing::label_hosts(trace);
  control.check();
  const tracing::CriticalPath path =
      tracing::critical_path(trace, labels, tracing::build_graph(trace, labels, step));
  TracePath shown;
  shown.begin_us = trace.first_us + path.begin_us;
  shown.end_us = trace.first_us + path.end_us;
  shown.num_steps = steps.size();
  std::unordered_map<uint32_t, uint32_t> places;
  for (const tracing::PathSegment& segment : path.segments) {
    if (segment.lane == tracing::kNone) continue;
    const auto [place, is_new] =
        places.try_emplace(segment.lane, static_cast<uint32_t>(shown.lanes.size()));
    if (is_new)
      shown.lanes.push_back(
          lane_key(trace.lanes[segment.lane].process, trace.lanes[segment.lane].thread));
    const auto kind = static_cast<uint8_t>(segment.kind);
    const double start = trace.first_us + segment.start_us, end = trace.first_us + segment.end_us;
    TracePathPiece* last = shown.pieces.empty() ? nullptr : &shown.pieces.back();
    if (last != nullptr && last->lane == place->second && last->kind == kind) {
      last->end_us = end;
    } else {
      shown.pieces.push_back({start, end, place->second, kind});
    }
  }
  shown.kinds = sums_of(path.kinds, kShownNames);
  shown.phases = sums_of(path.phases, kShownNames);
  shown.layers = sums_of(path.layers, kShownNames);
  shown.names = sums_of(path.names, kShownNames);
  control.check();
  shown.forecasts = forecasts_of(trace, step, path);
  return shown;
}

}  // namespace moonshard::viewer
