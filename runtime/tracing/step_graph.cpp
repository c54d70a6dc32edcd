#include "runtime/tracing/step_graph.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <unordered_map>

#include "runtime/tracing/found_graph.h"
#include "runtime/tracing/host_work.h"

namespace moonshard::tracing {
namespace {

constexpr double kBackToBack = 1.5;     // between kernels of a stream that is never empty
constexpr double kLongestLatency = 10;  // from a call to its kernel on an idle stream
constexpr double kUnexplained = 20;     // later than all that is known: it waited for another
constexpr double kSeenToWait = 10;      // and begins so soon behind the end of another
constexpr double kBlocked = 200;        // no launch takes so long by itself
constexpr double kCallItself = 5;       // of a call that waits

bool synchronizes(std::string_view name) {
  return name.find("Synchronize") != std::string_view::npos || name == "cudaMemcpy" ||
         name == "hipMemcpy";
}

class GraphBuilder {
 public:
  GraphBuilder(const TraceData& trace, const HostLabels& labels, const StepWindow& step)
      : trace_(trace), labels_(labels), step_(step) {}

  TracedGraph run() {
    graph_.begin_us = step_.begin_us;
    graph_.end_us = step_.end_us;
    begin_ = add_node({step_.begin_us, step_.begin_us, kNone, step_.lane, NodeKind::Begin});
    find_device_work();
    find_calls();
    find_handovers();
    chain_hosts();
    connect_devices();
    connect_end();
    found_.sort_into(graph_, begin_);
    return std::move(graph_);
  }

 private:
  struct HostNode {
    uint32_t node;
    bool is_handed_over;  // began behind another thread, not behind its own last work
  };

  uint32_t add_node(const GraphNode& node) { return found_.add(node); }
  const GraphNode& node(uint32_t number) const { return found_.node(number); }
  void connect(uint32_t from, uint32_t to, EdgeKind kind, double lag_us) {
    found_.connect(from, to, kind, lag_us);
  }

  bool is_in_step(const TraceEvent& event) const {
    return event.start_us >= step_.begin_us - kSameMoment && event.start_us < step_.end_us;
  }

  // What was started in the step, on whatever stream, in the order of time.
  void find_device_work() {
    node_of_.assign(trace_.events.size(), kNone);
    for (uint32_t lane = 0; lane < trace_.lanes.size(); ++lane) {
      if (!trace_.lanes[lane].is_device) continue;
      for (uint32_t i = trace_.lanes[lane].first; i < trace_.lanes[lane].last; ++i) {
        const TraceEvent& event = trace_.events[i];
        if (!runs_on_device(event.kind)) continue;
        if (!is_of_step(trace_, labels_, step_, i)) continue;
        const uint32_t call = labels_.call_of[i];
        node_of_[i] = add_node({event.start_us, event.end_us(), i, lane, NodeKind::Device});
        device_.push_back(node_of_[i]);
        if (call != kNone) started_[call].push_back(node_of_[i]);
        graph_.end_us = std::max(graph_.end_us, event.end_us());
      }
    }
    by_end_ = device_;
    std::sort(by_end_.begin(), by_end_.end(),
              [&](uint32_t a, uint32_t b) { return node(a).end_us < node(b).end_us; });
    for (auto& [call, list] : started_) {
      std::sort(list.begin(), list.end(),
                [&](uint32_t a, uint32_t b) { return node(a).start_us < node(b).start_us; });
      if (list.size() > 1) graph_.num_graph_kernels += list.size();
    }
  }

  // The last work on a device that had ended by then, of what was started before `call`.
  uint32_t last_ended(double time_us, double started_before_us, uint32_t other_than = kNone) const {
    auto place =
        std::upper_bound(by_end_.begin(), by_end_.end(), time_us + kSameMoment,
                         [&](double time, uint32_t number) { return time < node(number).end_us; });
    for (int tries = 0; place != by_end_.begin() && tries < 64; ++tries) {
      const uint32_t number = *--place;
      const uint32_t call = labels_.call_of[node(number).event];
      const double started = call != kNone ? trace_.events[call].start_us : node(number).start_us;
      if (node(number).lane != other_than && started <= started_before_us + kSameMoment)
        return number;
    }
    return kNone;
  }

  void find_calls() {
    host_.resize(trace_.lanes.size());
    for (uint32_t lane = 0; lane < trace_.lanes.size(); ++lane) {
      if (trace_.lanes[lane].is_device) continue;
      for (uint32_t i = trace_.lanes[lane].first; i < trace_.lanes[lane].last; ++i) {
        const TraceEvent& event = trace_.events[i];
        if (event.kind != EventKind::Call || !is_in_step(event)) continue;
        add_call(i, event, lane);
      }
    }
  }

  void add_call(uint32_t number, const TraceEvent& event, uint32_t lane) {
    const std::string& name = trace_.name_of(event);
    const bool starts = started_.contains(number);
    const bool may_wait = synchronizes(name) || event.length_us > kBlocked;
    const bool marks = name.find("EventRecord") != std::string::npos ||
                       name.find("WaitEvent") != std::string::npos;
    uint32_t awaited = kNone;
    if (may_wait) {
      awaited = last_ended(event.end_us(), event.start_us);
      if (awaited != kNone && node(awaited).end_us < event.start_us) awaited = kNone;
    }
    if (!starts && !marks && awaited == kNone) return;
    if (awaited == kNone) {
      node_of_[number] = add_node({event.start_us, event.end_us(), number, lane, NodeKind::Call});
      host_[lane].push_back({node_of_[number], false});
      return;
    }
    // It begins, may start something, and ends when that or something else is done.
    const double own = std::min(kCallItself, event.length_us);
    node_of_[number] =
        add_node({event.start_us, event.start_us + own, number, lane, NodeKind::Call});
    host_[lane].push_back({node_of_[number], false});
    const uint32_t end = add_node({event.end_us(), event.end_us(), number, lane, NodeKind::Point});
    host_[lane].push_back({end, true});
    connect(awaited, end, EdgeKind::Sync, event.end_us() - node(awaited).end_us);
  }

  // A thread that goes on after a pause in which another one stopped was waiting for that: a
  // backward pass runs on a thread of its own.
  void find_handovers() {
    std::vector<std::vector<BusyRun>> runs(trace_.lanes.size());
    size_t num_busy = 0;
    for (uint32_t lane = 0; lane < trace_.lanes.size(); ++lane) {
      runs[lane] = busy_runs(labels_.segments[lane], step_.begin_us, step_.end_us);
      num_busy += runs[lane].empty() ? 0 : 1;
    }
    if (num_busy < 2) return;
    for (uint32_t lane = 0; lane < trace_.lanes.size(); ++lane) {
      double idle_from = step_.begin_us;
      for (const BusyRun& run : runs[lane]) {
        hand_over(runs, lane, idle_from, run.begin_us);
        idle_from = run.end_us;
      }
      // The thread of the step may end with waiting for another.
      if (lane == step_.lane) hand_over(runs, lane, idle_from, step_.end_us);
    }
  }

  void hand_over(const std::vector<std::vector<BusyRun>>& runs, uint32_t lane, double idle_from,
                 double begins) {
    if (begins - idle_from < kIdleUs) return;
    uint32_t giver = kNone;
    double given = idle_from + (begins - idle_from) / 2;
    for (uint32_t other = 0; other < runs.size(); ++other) {
      if (other == lane || trace_.lanes[other].process != trace_.lanes[lane].process) continue;
      const auto behind =
          std::upper_bound(runs[other].begin(), runs[other].end(), begins + kIdleUs,
                           [](double time, const BusyRun& run) { return time < run.end_us; });
      if (behind == runs[other].begin()) continue;
      const double end = std::min(std::prev(behind)->end_us, begins);
      if (end <= given) continue;
      given = end;
      giver = other;
    }
    if (giver == kNone) return;
    const uint32_t from = add_node({given, given, kNone, giver, NodeKind::Point});
    const uint32_t to = add_node({begins, begins, kNone, lane, NodeKind::Point});
    host_[giver].push_back({from, false});
    host_[lane].push_back({to, true});
    connect(from, to, EdgeKind::Handover, begins - given);
  }

  void chain_hosts() {
    for (std::vector<HostNode>& list : host_) {
      std::stable_sort(list.begin(), list.end(), [&](const HostNode& a, const HostNode& b) {
        return node(a.node).start_us < node(b.node).start_us;
      });
      uint32_t before = begin_;
      for (const HostNode& own : list) {
        const double lag = node(own.node).start_us - node(before).end_us;
        // What was handed over waited for another: of its own thread only the order remains.
        connect(before, own.node, before == begin_ ? EdgeKind::Start : EdgeKind::Host,
                own.is_handed_over ? std::min(lag, 0.0) : lag);
        before = own.node;
      }
    }
  }

  // The least time from a call to its kernel.
  double launch_latency() const {
    double least = kLongestLatency;
    for (const auto& [call, list] : started_) {
      const double latency = node(list.front()).start_us - trace_.events[call].start_us;
      if (latency > 0) least = std::min(least, latency);
    }
    return least;
  }

  // What ran on another stream when this began: a kernel that fills a device lets others in when
  // its last blocks run out. device_ is in the order of time.
  uint32_t kernel_beside(uint32_t number) const {
    const GraphNode& own = node(number);
    auto place =
        std::lower_bound(device_.begin(), device_.end(), own.start_us,
                         [&](uint32_t other, double time) { return node(other).start_us < time; });
    for (int tries = 0; place != device_.begin() && tries < 64; ++tries) {
      const uint32_t other = *--place;
      if (node(other).lane != own.lane && node(other).end_us > own.start_us &&
          trace_.lanes[node(other).lane].process == trace_.lanes[own.lane].process)
        return other;
    }
    return kNone;
  }

  // What runs one behind the other: a stream. A plan shows copies of both directions in one lane.
  uint64_t queue_of(const GraphNode& own) const {
    const TraceEvent& event = trace_.events[own.event];
    const bool is_shared = trace_.is_modelled && event.kind == EventKind::Copy;
    return static_cast<uint64_t>(own.lane) << 32 | (is_shared ? event.name + 1 : 0);
  }

  void connect_devices() {
    find_waits();
    const double latency = launch_latency();
    std::unordered_map<uint64_t, uint32_t> last_of_queue;
    std::sort(device_.begin(), device_.end(), [&](uint32_t a, uint32_t b) {
      return node(a).start_us != node(b).start_us ? node(a).start_us < node(b).start_us : a < b;
    });
    for (const uint32_t number : device_) {
      const GraphNode& own = node(number);
      const uint32_t call = labels_.call_of[own.event];
      const uint64_t queue = queue_of(own);
      const auto known = last_of_queue.find(queue);
      const uint32_t before = known != last_of_queue.end() ? known->second : kNone;
      last_of_queue[queue] = number;
      connect_device(number, call != kNone ? node_of_[call] : kNone, before, latency);
    }
  }

  void connect_device(uint32_t number, uint32_t call, uint32_t before, double latency) {
    const GraphNode own = node(number);
    // Only the first kernel of a CUDA graph is started by the call; the others follow each other.
    const bool is_first = call != kNone && started_.at(node(call).event).front() == number;
    struct Candidate {
      uint32_t from;
      EdgeKind kind;
      double ready_us, least_lag;
    };
    std::vector<Candidate> all;
    if (call != kNone)
      all.push_back({call, EdgeKind::Launch, node(call).start_us + (is_first ? latency : 0),
                     std::min(latency, own.start_us - node(call).start_us)});
    if (before != kNone)
      all.push_back({before, EdgeKind::Stream, node(before).end_us,
                     std::min(kBackToBack, own.start_us - node(before).end_us)});
    const auto waits = waits_.find(number);
    if (waits != waits_.end())
      for (const uint32_t from : waits->second)
        all.push_back({from, EdgeKind::Wait, node(from).end_us, 0});
    double ready = step_.begin_us;
    for (const Candidate& one : all) ready = std::max(ready, one.ready_us);
    if (own.start_us - ready > kUnexplained) {
      const uint32_t seen = last_ended(own.start_us, own.start_us, own.lane);
      const uint32_t sharing = kernel_beside(number);
      if (seen != kNone && own.start_us - node(seen).end_us < kSeenToWait)
        all.push_back({seen, EdgeKind::Wait, node(seen).end_us, 0});
      else if (sharing != kNone)
        all.push_back({sharing, EdgeKind::Share, own.start_us, 0});
    }
    if (all.empty()) return connect(begin_, number, EdgeKind::Start, own.start_us - step_.begin_us);
    const auto bound = std::max_element(
        all.begin(), all.end(),
        [](const Candidate& a, const Candidate& b) { return a.ready_us < b.ready_us; });
    for (const Candidate& one : all) {
      const double from =
          begins_at_begin(one.kind) ? node(one.from).start_us : node(one.from).end_us;
      connect(one.from, number, one.kind,
              &one == &*bound ? own.start_us - from : std::min(one.least_lag, own.start_us - from));
    }
  }

  // Which kernel waits for which of another stream: by the ids of events where the trace has them,
  // else by the order in which the host recorded and waited.
  void find_waits() {
    graph_.waits_are_known = !trace_.waits.empty();
    if (graph_.waits_are_known) return find_named_waits();
    for (const std::vector<HostNode>& list : host_) {
      uint32_t last_started = kNone, last_recorded = kNone, pending = kNone;
      for (const HostNode& own : list) {
        const uint32_t event = node(own.node).event;
        if (event == kNone || node(own.node).kind != NodeKind::Call) continue;
        const std::string& name = trace_.name_of(trace_.events[event]);
        if (name.find("EventRecord") != std::string::npos) last_recorded = last_started;
        if (name.find("WaitEvent") != std::string::npos) pending = last_recorded;
        const auto started = started_.find(event);
        if (started == started_.end()) continue;
        add_wait(pending, started->second.front());
        pending = kNone;
        last_started = started->second.back();
      }
    }
  }

  void add_wait(uint32_t awaited, uint32_t waiting) {
    if (awaited == kNone || waiting == kNone || node(awaited).lane == node(waiting).lane) return;
    if (node(awaited).end_us <= node(waiting).start_us + kSameMoment)
      waits_[waiting].push_back(awaited);
  }

  // What was started on a stream before a call, or next behind it.
  void find_named_waits() {
    std::map<int64_t, std::vector<uint32_t>> by_stream;  // in the order of their calls
    const auto call_start = [&](uint32_t number) {
      const uint32_t call = labels_.call_of[node(number).event];
      return call != kNone ? trace_.events[call].start_us : node(number).start_us;
    };
    for (const uint32_t number : device_)
      by_stream[std::atoll(trace_.lanes[node(number).lane].thread.c_str())].push_back(number);
    for (auto& [stream, list] : by_stream)
      std::sort(list.begin(), list.end(),
                [&](uint32_t a, uint32_t b) { return call_start(a) < call_start(b); });
    std::unordered_map<int64_t, double> time_of;
    for (const std::vector<HostNode>& list : host_)
      for (const HostNode& own : list)
        if (node(own.node).event != kNone && node(own.node).kind == NodeKind::Call)
          time_of[trace_.events[node(own.node).event].correlation] = node(own.node).start_us;
    for (const StreamWait& wait : trace_.waits) {
      const auto waits = time_of.find(wait.correlation);
      const auto records = time_of.find(wait.record_correlation);
      const auto target = by_stream.find(wait.stream), source = by_stream.find(wait.awaited_stream);
      if (waits == time_of.end() || records == time_of.end() || target == by_stream.end() ||
          source == by_stream.end())
        continue;
      const auto behind = [&](std::vector<uint32_t>& list, double time) {
        return std::upper_bound(list.begin(), list.end(), time,
                                [&](double t, uint32_t number) { return t < call_start(number); });
      };
      const auto last = behind(source->second, records->second);
      const auto next = behind(target->second, waits->second);
      if (last == source->second.begin() || next == target->second.end()) continue;
      add_wait(*std::prev(last), *next);
    }
  }

  void connect_end() {
    const uint32_t end = add_node({graph_.end_us, graph_.end_us, kNone, step_.lane, NodeKind::End});
    std::unordered_map<uint64_t, uint32_t> last_of_queue;
    for (const uint32_t number : by_end_) last_of_queue[queue_of(node(number))] = number;
    double latest = step_.begin_us;
    for (const auto& [queue, number] : last_of_queue)
      latest = std::max(latest, node(number).end_us);
    for (uint32_t lane = 0; lane < host_.size(); ++lane) {
      const bool has_nodes = !host_[lane].empty();
      const uint32_t last = has_nodes ? host_[lane].back().node : begin_;
      if (lane != step_.lane) {
        if (has_nodes) connect(last, end, EdgeKind::Host, 0);
        continue;
      }
      // The host's own end; where the device ends later that is the step's.
      const double lag = std::min(step_.end_us, graph_.end_us) - node(last).end_us;
      connect(last, end, EdgeKind::Host, std::max(lag, 0.0));
    }
    for (const auto& [queue, number] : last_of_queue)
      connect(number, end, EdgeKind::Stream,
              node(number).end_us == latest && step_.end_us < latest
                  ? graph_.end_us - node(number).end_us
                  : 0);
    if (step_.lane == kNone && last_of_queue.empty())
      connect(begin_, end, EdgeKind::Start, graph_.end_us - graph_.begin_us);
  }

  const TraceData& trace_;
  const HostLabels& labels_;
  const StepWindow& step_;
  TracedGraph graph_;
  uint32_t begin_ = 0;
  FoundGraph found_;
  std::vector<uint32_t> node_of_;  // by event
  std::vector<uint32_t> device_, by_end_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> started_;  // by call: what it started
  std::unordered_map<uint32_t, std::vector<uint32_t>> waits_;    // by node: what it waits for
  std::vector<std::vector<HostNode>> host_;                      // by lane
};

}  // namespace

TracedGraph build_graph(const TraceData& trace, const HostLabels& labels, const StepWindow& step) {
  return GraphBuilder(trace, labels, step).run();
}

}  // namespace moonshard::tracing
