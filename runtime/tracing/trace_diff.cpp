#include "runtime/tracing/trace_diff.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace moonshard::tracing {
namespace {

class DiffTable {
 public:
  void add(int side, const std::string& name, PathKind kind, double us, double count) {
    const auto [place, is_new] = places_.try_emplace(name, rows_.size());
    if (is_new) rows_.push_back({name.empty() ? "-" : name, kind, {0, 0}, {0, 0}});
    DiffRow& row = rows_[place->second];
    row.us[side] += us;
    row.count[side] += count;
  }
  std::vector<DiffRow> take() {
    std::sort(rows_.begin(), rows_.end(), [](const DiffRow& a, const DiffRow& b) {
      const double x = std::abs(a.change_us()), y = std::abs(b.change_us());
      return x != y ? x > y : a.name < b.name;
    });
    return std::move(rows_);
  }

 private:
  std::unordered_map<std::string, size_t> places_;
  std::vector<DiffRow> rows_;
};

double median_of(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  const size_t half = list.size() / 2;
  return list.size() % 2 == 1 ? list[half] : (list[half - 1] + list[half]) / 2;
}

// Time by number first: a million events have some hundred names.
struct Sums {
  double us = 0;
  uint64_t count = 0;
};

class Side {
 public:
  explicit Side(const TraceData& trace) : trace_(trace), labels_(label_hosts(trace)) {}

  void add_to(int side, TraceDiff& diff, DiffTable& phases, DiffTable& layers, DiffTable& names) {
    const std::vector<StepWindow> steps = find_steps(trace_);
    std::vector<double> lengths;
    for (const StepWindow& step : steps) lengths.push_back(step.end_us - step.begin_us);
    diff.steps[side] = steps.size();
    const double share = 1.0 / static_cast<double>(steps.size());
    const bool has_device = std::any_of(trace_.lanes.begin(), trace_.lanes.end(),
                                        [](const EventLane& lane) { return lane.is_device; });
    has_device ? sum_device(steps.back()) : sum_host();
    for (const auto& [key, sum] : by_name_) diff.device_us[side] += has_device ? sum.us * share : 0;
    // The device may end behind the host's last step: as a critical path does.
    if (has_device && steps.size() == 1)
      lengths[0] = std::max(lengths[0], last_us_ - steps[0].begin_us);
    diff.step_us[side] = median_of(lengths);
    for (const auto& [key, sum] : by_phase_)
      phases.add(side, labels_.phases[key], PathKind::Kernel, sum.us * share,
                 static_cast<double>(sum.count) * share);
    for (const auto& [key, sum] : by_layer_)
      layers.add(side, labels_.layers[key], PathKind::Kernel, sum.us * share,
                 static_cast<double>(sum.count) * share);
    for (const auto& [key, sum] : by_name_) {
      const auto kind = static_cast<PathKind>(key >> 32);
      const auto name = static_cast<uint32_t>(key);
      names.add(side, name == kNone ? "(not traced)" : trace_.names[name], kind, sum.us * share,
                static_cast<double>(sum.count) * share);
    }
  }

 private:
  void add(uint32_t name, PathKind kind, const Label& label, double us, uint64_t count = 1) {
    Sums* sums[] = {&by_phase_[label.phase], &by_layer_[label.layer],
                    &by_name_[static_cast<uint64_t>(kind) << 32 | name]};
    for (Sums* sum : sums) {
      sum->us += us;
      sum->count += count;
    }
  }

  void sum_device(const StepWindow& last_step) {
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& event = trace_.events[i];
      if (!runs_on_device(event.kind)) continue;
      add(event.name, path_kind(trace_, event), labels_.of(i), event.length_us);
      if (is_of_step(trace_, labels_, last_step, i)) last_us_ = std::max(last_us_, event.end_us());
    }
  }

  void sum_host() {
    for (const std::vector<HostSegment>& segments : labels_.segments) {
      for (size_t i = 0; i + 1 < segments.size(); ++i) {
        const HostSegment& segment = segments[i];
        if (segment.op == kNone) continue;
        add(segment.op, host_kind(trace_.names[segment.op]), labels_.labels[segment.label],
            segments[i + 1].start_us - segment.start_us, segment.begins ? 1 : 0);
      }
    }
  }

  const TraceData& trace_;
  HostLabels labels_;
  std::unordered_map<uint32_t, Sums> by_phase_, by_layer_;
  std::unordered_map<uint64_t, Sums> by_name_;
  double last_us_ = 0;
};

}  // namespace

TraceDiff compare_traces(const TraceData& before, const TraceData& after) {
  TraceDiff diff;
  DiffTable phases, layers, names;
  Side(before).add_to(0, diff, phases, layers, names);
  Side(after).add_to(1, diff, phases, layers, names);
  diff.phases = phases.take();
  diff.layers = layers.take();
  diff.names = names.take();
  return diff;
}

}  // namespace moonshard::tracing
