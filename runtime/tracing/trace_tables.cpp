#include "runtime/tracing/trace_tables.h"

#include <array>

#include "runtime/base/check.h"
#include "runtime/tracing/critical_path.h"
#include "runtime/tracing/trace_diff.h"
#include "runtime/tracing/trace_reader.h"
#include "runtime/tracing/what_if.h"

namespace moonshard::tracing {
namespace {

Json about(const TraceData& trace) {
  Json table{{"file", trace.file}, {"events", trace.num_events}, {"modelled", trace.is_modelled}};
  if (!trace.what.empty()) table["what"] = trace.what;
  if (!trace.device.empty()) table["device"] = trace.device;
  if (trace.rank >= 0) table["rank"] = trace.rank;
  table["world"] = trace.world;
  return table;
}

StepWindow chosen_step(const TraceData& trace, const Json& options, Json& table) {
  const std::vector<StepWindow> steps = find_steps(trace);
  const auto count = static_cast<int64_t>(steps.size());
  const int64_t step = options.contains("step") ? options.at("step").get<int64_t>() : count;
  MS_CHECK(step >= 1 && step <= count,
           "trace: option 'step': expected 1 to {}, the steps of {}, got {}", count, trace.file,
           step);
  table["steps"] = count;
  table["step"] = step;
  return steps[static_cast<size_t>(step - 1)];
}

Json parts_table(const std::vector<PathPart>& parts, double total_us, bool has_kinds) {
  Json rows = Json::array();
  for (const PathPart& part : parts) {
    Json row{{"name", part.name}};
    if (has_kinds) row["kind"] = kPathKinds[static_cast<size_t>(part.kind)];
    row["ms"] = part.us / 1e3;
    row["percent"] = total_us > 0 ? 100 * part.us / total_us : 0;
    if (part.count > 0) row["count"] = part.count;
    rows.push_back(std::move(row));
  }
  return rows;
}

Json notes_of(const TraceData& trace, const TracedGraph& graph) {
  Json notes = Json::array();
  for (const std::string& note : trace.notes) notes.push_back(note);
  size_t streams = 0;
  for (const EventLane& lane : trace.lanes) streams += lane.is_device ? 1 : 0;
  if (streams > 1 && !graph.waits_are_known)
    notes.push_back(
        "the trace does not say which stream waited for which: it was read from the order of calls "
        "and of time");
  if (trace.world > 1)
    notes.push_back(
        "of one rank: time in a collective includes waiting for the ranks that came later");
  return notes;
}

ScaleRule rule_from(const Json& table) {
  static constexpr std::array<std::pair<const char*, RuleSubject>, 4> kNames{
      {{"name", RuleSubject::Name},
       {"phase", RuleSubject::Phase},
       {"layer", RuleSubject::Layer},
       {"kind", RuleSubject::Kind}}};
  ScaleRule rule;
  const std::string subject = table.at("subject").get<std::string>();
  for (const auto& [name, value] : kNames)
    if (subject == name) rule.subject = value;
  rule.glob = table.at("glob").get<std::string>();
  rule.factor = table.at("factor").get<double>();
  return rule;
}

Json diff_rows(const std::vector<DiffRow>& rows, bool has_kinds) {
  Json list = Json::array();
  for (const DiffRow& row : rows) {
    Json one{{"name", row.name}};
    if (has_kinds) one["kind"] = kPathKinds[static_cast<size_t>(row.kind)];
    one["before_count"] = row.count[0];
    one["after_count"] = row.count[1];
    one["before_ms"] = row.us[0] / 1e3;
    one["after_ms"] = row.us[1] / 1e3;
    one["change_ms"] = row.change_us() / 1e3;
    if (row.us[0] > 0) one["change_percent"] = 100 * row.change_us() / row.us[0];
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace

Json path_table(const std::string& file, const Json& options) {
  const TraceData trace = read_events(file);
  Json table = about(trace);
  const StepWindow step = chosen_step(trace, options, table);
  const HostLabels labels = label_hosts(trace);
  const TracedGraph graph = build_graph(trace, labels, step);
  const CriticalPath path = critical_path(trace, labels, graph);
  const double total = path.length_us();
  table["step_ms"] = total / 1e3;
  table["graph_kernels"] = graph.num_graph_kernels;
  table["kinds"] = parts_table(path.kinds, total, false);
  table["phases"] = parts_table(path.phases, total, false);
  table["layers"] = parts_table(path.layers, total, false);
  table["names"] = parts_table(path.names, total, true);
  table["notes"] = notes_of(trace, graph);
  if (options.value("segments", false)) {
    Json rows = Json::array();
    for (const PathSegment& segment : path.segments)
      rows.push_back({{"begin_ms", (segment.start_us - path.begin_us) / 1e3},
                      {"ms", (segment.end_us - segment.start_us) / 1e3},
                      {"kind", kPathKinds[static_cast<size_t>(segment.kind)]},
                      {"name", segment.name != kNone ? trace.names[segment.name]
                                                     : "(" + std::string(segment.reason) + ")"},
                      {"phase", labels.phases[labels.labels[segment.label].phase]},
                      {"layer", labels.layers[labels.labels[segment.label].layer]},
                      {"lane", segment.lane != kNone ? trace.lanes[segment.lane].name : ""}});
    table["segments"] = std::move(rows);
  }
  return table;
}

Json what_if_table(const std::string& file, const Json& options) {
  const TraceData trace = read_events(file);
  Json table = about(trace);
  const StepWindow step = chosen_step(trace, options, table);
  WhatIf changes;
  changes.norms = options.value("norms", false);
  changes.noise = options.value("noise", false);
  if (options.contains("update_gb_per_s"))
    changes.update_bytes_per_s = 1e9 * options.at("update_gb_per_s").value(trace.device, 0.0);
  if (options.contains("rules"))
    for (const Json& rule : options.at("rules")) changes.rules.push_back(rule_from(rule));
  // Beside a plan's trace there is nothing that was measured.
  changes.measured_us = trace.is_modelled ? 0 : 1e3 * options.value("measured_ms", 0.0);
  const WhatIfResult result = what_if(trace, step, changes);
  table["step_ms"] = result.measured_us / 1e3;
  table["predicted_ms"] = result.predicted_us / 1e3;
  table["change_percent"] =
      result.measured_us > 0 ? 100 * (result.predicted_us / result.measured_us - 1) : 0;
  if (changes.measured_us > 0) {
    table["measured_ms"] = changes.measured_us / 1e3;
    table["predicted_measured_ms"] = result.predicted_measured_us / 1e3;
    table["host_scale"] = result.host_scale;
  }
  table["removed_device_ms"] = result.removed_device_us / 1e3;
  table["removed_host_ms"] = result.removed_host_us / 1e3;
  table["kinds"] = parts_table(result.kinds, result.predicted_us, false);
  table["notes"] = result.notes;
  return table;
}

Json diff_table(const std::string& before, const std::string& after) {
  const TraceData first = read_events(before), second = read_events(after);
  const TraceDiff diff = compare_traces(first, second);
  Json table{{"before", about(first)}, {"after", about(second)}};
  for (const int side : {0, 1}) {
    Json& own = table[side == 0 ? "before" : "after"];
    own["steps"] = diff.steps[side];
    own["step_ms"] = diff.step_us[side] / 1e3;
    own["device_ms"] = diff.device_us[side] / 1e3;
  }
  table["phases"] = diff_rows(diff.phases, false);
  table["layers"] = diff_rows(diff.layers, false);
  table["names"] = diff_rows(diff.names, true);
  return table;
}

}  // namespace moonshard::tracing
