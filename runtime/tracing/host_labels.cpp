#include "runtime/tracing/host_labels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <unordered_map>

#include "runtime/profile/owner_names.h"

namespace moonshard::tracing {
namespace {

constexpr std::string_view kBackwardOp = "autograd::engine::evaluate_function";
constexpr std::string_view kModule = "nn.Module: ";
constexpr std::string_view kProfilerStep = "ProfilerStep#";
constexpr double kRounding = 1e-6;                     // of times that were milliseconds: us
constexpr std::string_view kModelled = " (modelled)";  // behind all names of a simulated step

bool is_own_phase(std::string_view name) {
  return std::any_of(std::begin(profile::kPhases), std::end(profile::kPhases),
                     [&](const profile::PhaseName& phase) { return name == phase.name; });
}

// Ranges around collectives stand for work of the host, not for a place in the model.
bool is_collective(std::string_view name) {
  return name.starts_with("nccl:") || name.starts_with("gloo:") || name.starts_with("c10d::");
}

// The part behind "word ", if the name has that form.
std::string_view behind(std::string_view name, std::string_view word) {
  if (name.size() <= word.size() + 1 || !name.starts_with(word) || name[word.size()] != ' ')
    return {};
  return name.substr(word.size() + 1);
}

// As it would be in a trace of a step that ran.
std::string_view without_suffix(std::string_view name) {
  if (name.ends_with(kModelled)) name.remove_suffix(kModelled.size());
  return name;
}

// Of "clipped sum" the phase clipped_sum, as a plan writes its work; empty where it names none.
std::string_view phase_that_begins(std::string_view name) {
  std::string_view longest;
  for (const profile::PhaseName& phase : profile::kPhases) {
    const std::string_view word = phase.name;
    if (word.size() > name.size() || word.size() <= longest.size()) continue;
    const bool is_same = std::equal(word.begin(), word.end(), name.begin(), [](char a, char b) {
      return a == b || (a == '_' && b == ' ');
    });
    if (is_same && (name.size() == word.size() || name[word.size()] == ' ')) longest = word;
  }
  return longest;
}

// What a name changes of the label around it.
struct Role {
  int64_t phase = -1, layer = -1;  // -1: as around it
  int part = -1;
};

class Labeller {
 public:
  Labeller(const TraceData& trace, const std::vector<uint64_t>& marks)
      : trace_(trace), marks_(marks) {
    result_.segments.resize(trace.lanes.size());
    result_.label_of.assign(trace.events.size(), 0);
    result_.marks_of.assign(trace.events.size(), 0);
    result_.call_of.assign(trace.events.size(), kNone);
  }

  HostLabels run() {
    find_roles();
    find_common_phases();
    for (uint32_t lane = 0; lane < trace_.lanes.size(); ++lane)
      if (!trace_.lanes[lane].is_device) sweep(lane);
    label_devices();
    return std::move(result_);
  }

 private:
  struct Open {
    double end_us;
    uint32_t op, label;
    uint64_t marks;
    bool has_phase;
  };
  struct Span {
    double start_us, end_us;
    uint32_t phase;
  };

  uint32_t number(std::vector<std::string>& list, std::unordered_map<std::string, uint32_t>& places,
                  std::string_view name) {
    const auto [place, is_new] =
        places.try_emplace(std::string(name), static_cast<uint32_t>(list.size()));
    if (is_new) list.emplace_back(name);
    return place->second;
  }
  uint32_t phase_number(std::string_view name) {
    return number(result_.phases, phase_places_, name);
  }
  uint32_t layer_number(std::string_view name) {
    return number(result_.layers, layer_places_, name);
  }

  uint32_t label_number(const Label& label) {
    const uint64_t key = static_cast<uint64_t>(label.phase) << 34 |
                         static_cast<uint64_t>(label.layer) << 2 |
                         static_cast<uint64_t>(label.part);
    const auto [place, is_new] =
        label_places_.try_emplace(key, static_cast<uint32_t>(result_.labels.size()));
    if (is_new) result_.labels.push_back(label);
    return place->second;
  }

  Role role_of_range(std::string_view name) {
    if (is_own_phase(name)) return {.phase = phase_number(name)};
    if (name.starts_with("Optimizer.")) return {.phase = phase_number("optimizer")};
    if (name.starts_with(kProfilerStep) || name.starts_with("##") || is_collective(name)) return {};
    if (const auto unit = behind(name, "update"); !unit.empty())
      return {phase_number("update"), layer_number(unit), -1};
    if (const auto layer = behind(name, profile::kTracedNorms); !layer.empty()) {
      result_.names_clipping = true;
      return {-1, layer_number(layer), static_cast<int>(ClipPart::Norms)};
    }
    if (const auto layer = behind(name, profile::kTracedGradients); !layer.empty())
      return {-1, layer_number(layer), static_cast<int>(ClipPart::Gradients)};
    return {.layer = layer_number(name)};
  }

  Role role_of_op(std::string_view name) {
    if (name.starts_with(kModule)) return {.layer = layer_number(name.substr(kModule.size()))};
    if (name.starts_with(kBackwardOp)) return {.phase = phase_number("backward")};
    return {};
  }

  void find_roles() {
    std::vector<uint8_t> as_range(trace_.names.size(), 0), as_op(trace_.names.size(), 0);
    for (const TraceEvent& event : trace_.events) {
      if (event.kind == EventKind::Annotation) as_range[event.name] = 1;
      if (event.kind == EventKind::Op) as_op[event.name] = 1;
    }
    range_roles_.resize(trace_.names.size());
    op_roles_.resize(trace_.names.size());
    for (size_t i = 0; i < trace_.names.size(); ++i) {
      if (as_range[i] == 0) continue;
      has_phases_ = has_phases_ || is_own_phase(plain_name(i));
      range_roles_[i] = role_of_range(plain_name(i));
    }
    for (size_t i = 0; i < trace_.names.size(); ++i) {
      if (as_op[i] == 0) continue;
      op_roles_[i] = role_of_op(trace_.names[i]);
      if (has_phases_) op_roles_[i].phase = -1;  // our own are exact: there may be two passes
      has_backward_ = has_backward_ || op_roles_[i].phase >= 0;
    }
    if (has_backward_) base_phase_ = phase_number("forward");
  }

  // The phase in which threads work that have no ranges of their own, by the time.
  void find_common_phases() {
    if (!has_phases_) return;
    for (const TraceEvent& event : trace_.events) {
      const std::string_view name = plain_name(event.name);
      if (event.kind != EventKind::Annotation || !is_own_phase(name)) continue;
      const Span span{event.start_us, event.end_us(), phase_number(name)};
      phases_.push_back(span);
      if (trace_.is_modelled) rulers_[trace_.lanes[event.lane].process].push_back(span);
    }
    const auto by_time = [](const Span& a, const Span& b) { return a.start_us < b.start_us; };
    std::sort(phases_.begin(), phases_.end(), by_time);
    for (auto& [process, spans] : rulers_) std::sort(spans.begin(), spans.end(), by_time);
  }

  std::string_view plain_name(size_t name) const {
    return trace_.is_modelled ? without_suffix(trace_.names[name])
                              : std::string_view(trace_.names[name]);
  }

  // The last phase that had begun by then; events come in the order of time.
  uint32_t common_phase(double time_us, size_t& cursor) const {
    while (cursor + 1 < phases_.size() && phases_[cursor + 1].start_us <= time_us) ++cursor;
    if (cursor >= phases_.size() || phases_[cursor].start_us > time_us ||
        phases_[cursor].end_us < time_us)
      return base_phase_;
    return phases_[cursor].phase;
  }

  void sweep(uint32_t lane_number) {
    const EventLane& lane = trace_.lanes[lane_number];
    std::vector<HostSegment>& segments = result_.segments[lane_number];
    segments.reserve(2 * (lane.last - lane.first) + 1);
    std::vector<Open> open;
    size_t cursor = 0;
    const auto emit = [&](double time_us) {
      HostSegment segment{time_us, kNone, 0, 0};
      if (!open.empty()) {
        const Open& top = open.back();
        segment = {time_us, top.op, top.label, top.marks};
      }
      if (!segments.empty() && segments.back().start_us >= time_us) {
        segments.back() = segment;
        segments.back().start_us = time_us;
      } else {
        segments.push_back(segment);
      }
    };
    const auto close_before = [&](double time_us) {
      while (!open.empty() && open.back().end_us <= time_us) {
        const double end = open.back().end_us;
        open.pop_back();
        emit(segments.empty() ? end : std::max(end, segments.back().start_us));
      }
    };
    for (uint32_t i = lane.first; i < lane.last; ++i) {
      const TraceEvent& event = trace_.events[i];
      close_before(event.start_us);
      Label label = open.empty() ? Label{} : result_.labels[open.back().label];
      bool has_phase = !open.empty() && open.back().has_phase;
      const bool is_range = event.kind == EventKind::Annotation;
      const Role role = is_range                      ? range_roles_[event.name]
                        : event.kind == EventKind::Op ? op_roles_[event.name]
                                                      : Role{};
      if (role.phase >= 0) {
        label.phase = static_cast<uint32_t>(role.phase);
        has_phase = true;
      } else if (!has_phase) {
        label.phase = common_phase(event.start_us, cursor);
      }
      if (role.layer >= 0) label.layer = static_cast<uint32_t>(role.layer);
      if (role.part >= 0) label.part = static_cast<ClipPart>(role.part);
      const uint32_t op = is_range && !is_collective(trace_.name_of(event))
                              ? (open.empty() ? kNone : open.back().op)
                              : event.name;
      const uint64_t mark = event.name < marks_.size() ? marks_[event.name] : 0;
      const uint64_t marks = (open.empty() ? 0 : open.back().marks) | mark;
      open.push_back({event.end_us(), op, label_number(label), marks, has_phase});
      emit(event.start_us);
      segments.back().begins = op == event.name;
      result_.label_of[i] = open.back().label;
      result_.marks_of[i] = marks;
    }
    close_before(INFINITY);
  }

  void label_devices() {
    std::unordered_map<int64_t, uint32_t> calls;
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& event = trace_.events[i];
      if (event.kind == EventKind::Call && event.correlation >= 0)
        calls.emplace(event.correlation, i);
    }
    for (uint32_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& event = trace_.events[i];
      if (!runs_on_device(event.kind)) continue;
      if (event.name < marks_.size()) result_.marks_of[i] = marks_[event.name];
      const auto call = event.correlation >= 0 ? calls.find(event.correlation) : calls.end();
      if (call == calls.end()) {
        result_.label_of[i] = label_by_name(event);
        continue;
      }
      result_.call_of[i] = call->second;
      result_.label_of[i] = result_.label_of[call->second];
      result_.marks_of[i] |= result_.marks_of[call->second];
    }
  }

  // A simulated step has no host. Spans begin with the name of their phase, as the update of one
  // unit may lie among the sums of others; collectives and copies belong to the phase of their rank
  // in which they begin.
  uint32_t label_by_name(const TraceEvent& event) {
    const std::string_view name = plain_name(event.name);
    const std::string_view phase =
        trace_.is_modelled ? phase_that_begins(name) : name.substr(0, name.find(' '));
    if (!is_own_phase(phase)) {
      const auto ruler = rulers_.find(trace_.lanes[event.lane].process);
      return ruler == rulers_.end() ? 0 : label_number({phase_at(ruler->second, event.start_us)});
    }
    const std::string_view rest =
        without_suffix(name.size() > phase.size() ? name.substr(phase.size() + 1) : "");
    return label_number({phase_number(phase), rest.empty() ? 0 : layer_number(rest)});
  }

  // The last that had begun by then; rounding may put work just before its phase.
  static uint32_t phase_at(const std::vector<Span>& spans, double time_us) {
    const auto behind =
        std::upper_bound(spans.begin(), spans.end(), time_us + kRounding,
                         [](double time, const Span& span) { return time < span.start_us; });
    return behind == spans.begin() ? 0 : std::prev(behind)->phase;
  }

  const TraceData& trace_;
  const std::vector<uint64_t>& marks_;
  HostLabels result_;
  std::unordered_map<std::string, uint32_t> phase_places_{{"", 0}}, layer_places_{{"", 0}};
  std::unordered_map<uint64_t, uint32_t> label_places_{{0, 0}};
  std::vector<Role> range_roles_, op_roles_;
  std::vector<Span> phases_;
  std::map<std::string, std::vector<Span>> rulers_;  // phases of a simulated step, by rank
  bool has_phases_ = false, has_backward_ = false;
  uint32_t base_phase_ = 0;
};

}  // namespace

HostLabels label_hosts(const TraceData& trace, const std::vector<uint64_t>& marks) {
  return Labeller(trace, marks).run();
}

bool is_of_step(const TraceData& trace, const HostLabels& labels, const StepWindow& step,
                uint32_t event) {
  const uint32_t call = labels.call_of[event];
  const double start = trace.events[call != kNone ? call : event].start_us;
  return start >= step.begin_us - kSameMoment && start < step.end_us;
}

std::vector<StepWindow> find_steps(const TraceData& trace) {
  std::vector<StepWindow> profiled, phased;
  double first = 0, last = 0;
  uint32_t busiest = kNone;
  for (uint32_t lane = 0; lane < trace.lanes.size(); ++lane) {
    const EventLane& own = trace.lanes[lane];
    if (!own.is_device &&
        (busiest == kNone ||
         own.last - own.first > trace.lanes[busiest].last - trace.lanes[busiest].first))
      busiest = lane;
    for (uint32_t i = own.first; i < own.last; ++i) {
      const TraceEvent& event = trace.events[i];
      last = std::max(last, event.end_us());
      if (event.kind != EventKind::Annotation) continue;
      const std::string& name = trace.name_of(event);
      if (name.starts_with(kProfilerStep))
        profiled.push_back({event.start_us, event.end_us(), lane});
      if (!is_own_phase(name)) continue;
      // A step begins with its first phase, and at the latest where that comes again.
      const bool begins =
          phased.empty() || phased.back().lane != lane || name == profile::kPhases[0].name;
      if (begins) phased.push_back({event.start_us, event.end_us(), lane});
      phased.back().end_us = std::max(phased.back().end_us, event.end_us());
    }
  }
  // No thread ran a plan's simulated step: its lane of phases is a ruler.
  if (trace.is_modelled) return {{first, last, kNone}};
  std::vector<StepWindow>& found = profiled.empty() ? phased : profiled;
  if (found.empty()) found.push_back({first, last, busiest});
  std::sort(found.begin(), found.end(),
            [](const StepWindow& a, const StepWindow& b) { return a.begin_us < b.begin_us; });
  return found;
}

}  // namespace moonshard::tracing
