#include "runtime/tracing/what_if.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "runtime/base/check.h"
#include "runtime/base/globs.h"
#include "runtime/tracing/host_work.h"
#include "runtime/tracing/stand_ins.h"

namespace moonshard::tracing {
namespace {

constexpr size_t kMostRules = 60;        // a bit each
constexpr double kHostBound = 0.3;       // of the path
constexpr double kNoiseInUpdate = 1.15;  // an update with noise, of one without, on an H200
// Of a trace, for each piece of the host's work: us.
constexpr double kUsualOverhead = 2, kMostOverhead = 50;
constexpr double kAlsoGood = 0.05;  // of a step that was measured
constexpr const char* kPrivatePhases[] = {"norm_reduce", "clip_factors", "clipped_sum",
                                          "second_backward", "update"};
constexpr const char* kSubjects[] = {"name", "phase", "layer", "kind"};

class Prediction {
 public:
  Prediction(const TraceData& trace, const StepWindow& step, const WhatIf& changes)
      : trace_(trace), step_(step), changes_(changes) {
    MS_CHECK(changes.rules.size() <= kMostRules,
             "what_if: expected at most {} rules, got {}; a glob may stand for many names",
             kMostRules, changes.rules.size());
    for (const ScaleRule& rule : changes.rules)
      MS_CHECK(std::isfinite(rule.factor) && rule.factor >= 0,
               "what_if: {} '{}': expected a factor of at least 0, got {}",
               kSubjects[static_cast<size_t>(rule.subject)], rule.glob, rule.factor);
  }

  WhatIfResult run() {
    labels_ = label_hosts(trace_, name_marks());
    graph_ = build_graph(trace_, labels_, step_);
    find_phases();
    find_update();
    const ScaledHost host(labels_, host_factors());
    result_.measured_us = graph_.end_us - graph_.begin_us;
    find_factors();
    result_.predicted_us = pass(host, changed_, 0);
    count_removed(host);
    refuse_unmatched();
    if (changes_.measured_us > 0) predict_measured();
    return std::move(result_);
  }

 private:
  std::vector<uint64_t> name_marks() const {
    std::vector<uint64_t> marks(trace_.names.size(), 0);
    for (size_t i = 0; i < changes_.rules.size(); ++i) {
      const ScaleRule& rule = changes_.rules[i];
      if (rule.subject != RuleSubject::Name) continue;
      const std::vector<std::string> globs{rule.glob};
      for (size_t name = 0; name < trace_.names.size(); ++name)
        if (matches_any(globs, trace_.names[name])) marks[name] |= 1ull << i;
    }
    return marks;
  }

  std::function<double(const HostSegment&)> host_factors() {
    return [this](const HostSegment& segment) {
      return factor_of(segment.label, segment.marks, host_kind_of(segment));
    };
  }

  PathKind host_kind_of(const HostSegment& segment) const {
    return segment.op != kNone ? host_kind(trace_.names[segment.op]) : PathKind::Host;
  }

  // What the step has of norms, and which of its phases a plain step has not.
  void find_phases() {
    is_gone_.assign(labels_.phases.size(), 0);
    if (!changes_.norms) return;
    const std::set<std::string> seen = phases_of_step();
    MS_CHECK(seen.size() > 1 || (seen.size() == 1 && !seen.begin()->empty()),
             "what_if: expected a trace with ranges that name a step's phases to leave out its "
             "norms, got one without any ({})",
             trace_.file);
    refuse_unnamed_norms(seen);
    const bool clips = seen.contains("clip_factors");
    if (!clips) {
      result_.notes.push_back("this step clips nothing: there are no norms to leave out");
      return;
    }
    const bool twice = seen.contains("second_backward");
    plain_share_ = shares_of_plain_kernels(trace_.names, twice);
    MS_CHECK(labels_.names_clipping || twice,
             "what_if: expected a trace that names what norms need, got one without such ranges "
             "({}); it is of an older version: trace the step again",
             trace_.file);
    for (size_t i = 0; i < labels_.phases.size(); ++i) {
      const std::string& phase = labels_.phases[i];
      if (phase == "clip_factors" || phase == "norm_reduce" || (twice && phase == "backward"))
        is_gone_[i] = 1;
    }
    if (twice)
      result_.notes.push_back(
          "the first of two backward passes is there for norms alone: it is left out");
  }

  std::set<std::string> phases_of_step() const {
    std::set<std::string> seen;
    for (const GraphNode& node : graph_.nodes)
      if (node.event != kNone) seen.insert(labels_.phases[labels_.of(node.event).phase]);
    for (uint32_t lane = 0; lane < trace_.lanes.size(); ++lane)
      for (const HostSegment& segment : labels_.segments[lane])
        if (segment.start_us >= graph_.begin_us && segment.start_us < graph_.end_us)
          seen.insert(labels_.phases[labels_.labels[segment.label].phase]);
    return seen;
  }

  // Steps that clip, and do not show it in phases of their own.
  void refuse_unnamed_norms(const std::set<std::string>& seen) const {
    const bool is_private = std::any_of(std::begin(kPrivatePhases), std::end(kPrivatePhases),
                                        [&](const char* phase) { return seen.contains(phase); });
    MS_CHECK(!trace_.is_modelled || !is_private,
             "what_if: expected a step that ran to leave out its norms, got a modelled one ({}), "
             "whose backward pass and norms are one span: ask the plan for the step without them, "
             "moonshard plan with --mode none",
             trace_.file);
    MS_CHECK(trace_.is_modelled || !seen.contains("graph") || seen.contains("clip_factors"),
             "what_if: expected a trace that names what norms need, got one of a replayed CUDA "
             "graph ({}), whose kernels all belong to one call: trace the step with compile = no",
             trace_.file);
  }

  // An update adds noise, and sums up gradients of samples that were kept, in the one pass that it
  // makes anyway: without them it is bound by its memory.
  void find_update() {
    double time_us = 0, rows_us = 0;
    for (const GraphNode& node : graph_.nodes) {
      if (node.kind != NodeKind::Device) continue;
      if (phase_of(node) == "update") time_us += node.end_us - node.start_us;
      if (labels_.of(node.event).part == ClipPart::Gradients)
        rows_us += node.end_us - node.start_us;
    }
    // Making them takes longer than summing them up: of a few small layers they are nothing here.
    const bool sums_rows = rows_us > time_us;
    for (size_t i = 0; changes_.noise && i < labels_.phases.size(); ++i)
      if (labels_.phases[i] == "noise") is_gone_[i] = 1;
    const bool is_asked = changes_.noise || (changes_.norms && sums_rows);
    if (!is_asked) return;
    if (time_us == 0) {
      const std::set<std::string> seen = phases_of_step();
      if (seen.contains("update"))
        result_.notes.push_back("noise on the host is part of the update's pass: it stays");
      else if (changes_.noise && !seen.contains("noise"))
        result_.notes.push_back("this step adds no noise: there is none to leave out");
      return;
    }
    const bool rows_alone = !changes_.noise;
    if (trace_.update_bytes <= 0 || changes_.update_bytes_per_s <= 0) {
      result_.notes.push_back(fmt::format(
          "the update keeps its {:.1f} ms: {}", time_us / 1e3,
          trace_.update_bytes <= 0 ? "the trace does not say how much memory it goes over"
                                   : "the bandwidth of " + trace_.device + " is not known"));
      return;
    }
    const double floor_us =
        1e6 * trace_.update_bytes / changes_.update_bytes_per_s * (rows_alone ? kNoiseInUpdate : 1);
    update_factor_ = std::min(1.0, floor_us / time_us);
    result_.notes.push_back(
        fmt::format("the update, {:.1f} ms, goes over {:.1f} GB: without {} {:.1f} ms",
                    time_us / 1e3, trace_.update_bytes / 1e9,
                    rows_alone  ? "gradients of samples"
                    : sums_rows ? "noise and gradients of samples"
                                : "noise",
                    time_us * update_factor_ / 1e3));
  }

  const std::string& phase_of(const GraphNode& node) const {
    return labels_.phases[labels_.of(node.event).phase];
  }

  bool applies(const ScaleRule& rule, const Label& label, PathKind kind) const {
    const std::vector<std::string> globs{rule.glob};
    switch (rule.subject) {
      case RuleSubject::Name:
        return false;  // by marks
      case RuleSubject::Phase:
        return matches_any(globs, labels_.phases[label.phase]);
      case RuleSubject::Layer:
        return label.layer != 0 && matches_any(globs, labels_.layers[label.layer]);
      case RuleSubject::Kind:
        return matches_any(globs, kPathKinds[static_cast<size_t>(kind)]);
    }
    return false;
  }

  // Of everything but names; equal labels have equal factors.
  double label_factor(uint32_t label, PathKind kind, uint64_t* marks) {
    const size_t place =
        static_cast<size_t>(label) * std::size(kPathKinds) + static_cast<size_t>(kind);
    if (place >= known_.size()) known_.resize(place + 1, {-1, 0});
    auto& [factor, matched] = known_[place];
    if (factor < 0) {
      const Label& own = labels_.labels[label];
      factor = is_gone_[own.phase] != 0 ? 0 : 1;
      if (changes_.norms && own.part == ClipPart::Norms) factor = 0;
      for (size_t i = 0; i < changes_.rules.size(); ++i) {
        if (!applies(changes_.rules[i], own, kind)) continue;
        factor *= changes_.rules[i].factor;
        matched |= 1ull << i;
      }
    }
    *marks |= matched;
    return factor;
  }

  double factor_of(uint32_t label, uint64_t marks, PathKind kind) {
    uint64_t all = marks;
    double factor = label_factor(label, kind, &all);
    for (size_t i = 0; i < changes_.rules.size() && marks >> i != 0; ++i)
      if ((marks >> i & 1) != 0) factor *= changes_.rules[i].factor;
    seen_ |= all;
    return factor;
  }

  double factor_of(const GraphNode& node) {
    if (node.event == kNone) return 1;
    const PathKind kind = path_kind(trace_, trace_.events[node.event]);
    double factor = factor_of(labels_.label_of[node.event], labels_.marks_of[node.event], kind);
    if (node.kind == NodeKind::Device && update_factor_ < 1 && phase_of(node) == "update")
      factor *= update_factor_;
    if (node.kind == NodeKind::Device && !plain_share_.empty())
      factor *= plain_share_[trace_.events[node.event].name];
    return factor;
  }

  // A call whose kernels are all gone is gone, too.
  void find_factors() {
    changed_.nodes.resize(graph_.nodes.size(), 1);
    std::vector<double> kept(trace_.events.size(), -1);  // by call: the largest of what it starts
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& node = graph_.nodes[i];
      changed_.nodes[i] = factor_of(node);
      if (node.kind != NodeKind::Device) continue;
      const uint32_t call = labels_.call_of[node.event];
      if (call != kNone) kept[call] = std::max(kept[call], changed_.nodes[i]);
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& node = graph_.nodes[i];
      if (node.kind == NodeKind::Call && kept[node.event] == 0) changed_.nodes[i] = 0;
    }
    for (size_t i = 0; i < changes_.rules.size(); ++i) {
      const ScaleRule& rule = changes_.rules[i];
      if (rule.subject != RuleSubject::Kind || !matches_any({rule.glob}, "gap")) continue;
      changed_.gaps *= rule.factor;
      seen_ |= 1ull << i;
    }
  }

  struct Factors {
    std::vector<double> nodes;
    double gaps = 1;  // between work of the device
  };

  // The step's length with these factors, on this host, which the trace took so much of.
  double pass(const ScaledHost& host, const Factors& factors, double overhead_us) {
    const size_t count = graph_.nodes.size();
    std::vector<double> start(count, 0), end(count, 0);
    std::vector<uint32_t> binding(count, kNone);
    for (size_t i = 0; i < count; ++i) {
      const GraphNode& node = graph_.nodes[i];
      double latest = i == 0 ? 0 : -INFINITY;
      for (uint32_t k = node.first_edge; k < node.first_edge + node.num_edges; ++k) {
        const GraphEdge& edge = graph_.edges[k];
        const double from = begins_at_begin(edge.kind) ? start[edge.from] : end[edge.from];
        const double ready = from + lag_of(edge, node, factors, i, host, overhead_us);
        if (ready > latest) {
          latest = ready;
          binding[i] = edge.from;
        }
      }
      start[i] = latest;
      const double length = node.end_us - node.start_us;
      const bool is_call = node.kind == NodeKind::Call;
      end[i] = latest +
               factors.nodes[i] * length * (is_call ? share_without_trace(length, overhead_us) : 1);
    }
    if (result_.kinds.empty()) add_up(start, end, binding);  // the first pass is the prediction
    return end.back();
  }

  double lag_of(const GraphEdge& edge, const GraphNode& node, const Factors& factors, size_t number,
                const ScaledHost& host, double overhead_us) const {
    const GraphNode& from = graph_.nodes[edge.from];
    const bool is_host = edge.kind == EdgeKind::Host ||
                         (edge.kind == EdgeKind::Start && node.kind != NodeKind::Device);
    if (is_host && edge.lag_us > 0)
      return host.between(node.lane, from.end_us, from.end_us + edge.lag_us);
    if (edge.kind == EdgeKind::Handover)
      return edge.lag_us * share_without_trace(edge.lag_us, overhead_us);
    if (edge.kind == EdgeKind::Share) return edge.lag_us * factors.nodes[edge.from];
    // No gap before what is not there.
    if (node.kind == NodeKind::Device && edge.kind != EdgeKind::Start && edge.lag_us > 0)
      return edge.lag_us * (factors.nodes[number] == 0 ? 0 : 1) *
             (edge.kind == EdgeKind::Launch ? 1 : factors.gaps);
    return edge.lag_us;
  }

  // What the trace took of the host, for each operator and call that it noted: so much that the
  // graph without it gives the step that was measured. What remains is taken as a share of all.
  void predict_measured() {
    const Factors as_traced{std::vector<double>(graph_.nodes.size(), 1)};
    const auto length = [&](double overhead_us) {
      return pass(unchanged_host(overhead_us), as_traced, overhead_us);
    };
    double low = 0, high = kMostOverhead;
    // Where even a fast host does not explain it, the device itself was slower in the trace.
    if (length(high) < changes_.measured_us && length(low) > changes_.measured_us) {
      for (int i = 0; i < 20; ++i) {
        const double middle = (low + high) / 2;
        (length(middle) > changes_.measured_us ? low : high) = middle;
      }
    }
    // A step that its device bounds does not show what the trace takes of the host: the usual,
    // where that gives the measured step as well.
    const bool is_usual = std::abs(length(kUsualOverhead) / changes_.measured_us - 1) < kAlsoGood;
    if (low < kUsualOverhead && is_usual) low = kUsualOverhead;
    result_.host_scale = host_time(low) / std::max(host_time(0), 1e-9);
    const ScaledHost changed(labels_, host_factors(), low);
    result_.predicted_measured_us =
        pass(changed, changed_, low) * changes_.measured_us / length(low);
  }

  ScaledHost unchanged_host(double overhead_us) const {
    return {labels_, [](const HostSegment&) { return 1.0; }, overhead_us};
  }

  // Of all threads, in the step.
  double host_time(double overhead_us) const {
    const ScaledHost host = unchanged_host(overhead_us);
    double time = 0;
    for (uint32_t lane = 0; lane < trace_.lanes.size(); ++lane)
      if (!labels_.segments[lane].empty()) time += host.between(lane, step_.begin_us, step_.end_us);
    return time;
  }

  // The path that would be, by kind.
  void add_up(const std::vector<double>& start, const std::vector<double>& end,
              const std::vector<uint32_t>& binding) {
    std::array<double, std::size(kPathKinds)> sums{};
    double cursor = end.back();
    const auto take = [&](double from, PathKind kind) {
      from = std::max(from, 0.0);
      if (from > cursor - kNothing) return;
      sums[static_cast<size_t>(kind)] += cursor - from;
      cursor = from;
    };
    for (uint32_t i = static_cast<uint32_t>(binding.size() - 1); binding[i] != kNone;
         i = binding[i]) {
      const GraphNode& node = graph_.nodes[i];
      if (node.event != kNone && node.kind != NodeKind::Point)
        take(start[i], path_kind(trace_, trace_.events[node.event]));
      take(end[binding[i]], node.kind == NodeKind::Device ? PathKind::Gap : PathKind::Host);
    }
    take(0, PathKind::Host);
    for (size_t kind = 0; kind < sums.size(); ++kind)
      if (sums[kind] > 0)
        result_.kinds.push_back({kPathKinds[kind], static_cast<PathKind>(kind), sums[kind], 0});
    std::sort(result_.kinds.begin(), result_.kinds.end(),
              [](const PathPart& a, const PathPart& b) { return a.us > b.us; });
    const bool has_device = std::any_of(trace_.lanes.begin(), trace_.lanes.end(),
                                        [](const EventLane& lane) { return lane.is_device; });
    const bool was_traced = has_device && !trace_.is_modelled;
    if (was_traced && sums[static_cast<size_t>(PathKind::Host)] > kHostBound * end.back())
      result_.notes.push_back(
          "the step would wait for the host, which a trace slows down: it is rather shorter");
  }

  void count_removed(const ScaledHost& host) {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& node = graph_.nodes[i];
      if (node.kind == NodeKind::Device)
        result_.removed_device_us += (1 - changed_.nodes[i]) * (node.end_us - node.start_us);
    }
    // The host's lane of a plan is a ruler of phases.
    for (uint32_t lane = 0; lane < trace_.lanes.size() && !trace_.is_modelled; ++lane)
      if (!labels_.segments[lane].empty())
        result_.removed_host_us +=
            (step_.end_us - step_.begin_us) - host.between(lane, step_.begin_us, step_.end_us);
  }

  void refuse_unmatched() {
    for (size_t i = 0; i < changes_.rules.size(); ++i) {
      const ScaleRule& rule = changes_.rules[i];
      if ((seen_ >> i & 1) != 0) continue;
      std::string known;
      if (rule.subject == RuleSubject::Phase)
        for (const std::string& phase : labels_.phases)
          if (!phase.empty()) known += (known.empty() ? "; known: " : ", ") + phase;
      if (rule.subject == RuleSubject::Kind)
        for (const char* kind : kPathKinds)
          known += (known.empty() ? "; known: " : ", ") + std::string(kind);
      throw UsageError(
          fmt::format("what_if: expected a {} of this step, got '{}', which matches "
                      "nothing in it{}",
                      kSubjects[static_cast<size_t>(rule.subject)], rule.glob,
                      known.empty() ? "; a * stands for any letters" : known));
    }
  }

  const TraceData& trace_;
  const StepWindow& step_;
  const WhatIf& changes_;
  WhatIfResult result_;
  HostLabels labels_;
  TracedGraph graph_;
  std::vector<uint8_t> is_gone_;  // by phase
  std::vector<std::pair<double, uint64_t>> known_;
  Factors changed_;
  std::vector<double> plain_share_;  // by name of a kernel, of its time in a step without norms
  double update_factor_ = 1;
  uint64_t seen_ = 0;
};

}  // namespace

WhatIfResult what_if(const TraceData& trace, const StepWindow& step, const WhatIf& changes) {
  return Prediction(trace, step, changes).run();
}

}  // namespace moonshard::tracing
