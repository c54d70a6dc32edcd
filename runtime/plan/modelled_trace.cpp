#include "runtime/plan/modelled_trace.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>

namespace moonshard::plan {
namespace {

// A lane is what works its spans off one after another. Where a stream has several in flight
// (Gloo), it has as many lanes.
class RankLanes {
 public:
  RankLanes(int rank, Json& events) : rank_(rank), events_(events) {}

  void add(std::vector<const TraceSpan*>& spans) {
    std::ranges::stable_sort(spans, {}, &TraceSpan::begin_ms);
    for (const TraceSpan* span : spans) add(*span);
  }

 private:
  static constexpr const char* kOrder[] = {"phases",  // first: they are no work
                                           "host",
                                           "compute",
                                           "communication",
                                           "communication between copies",
                                           "copies to device",
                                           "copies to host"};
  static constexpr size_t kMostAtOnce = 64;

  void add(const TraceSpan& span) {
    constexpr double kRounding = 1e-9;
    std::vector<double>& ends = ends_[span.lane];
    const auto free =
        std::ranges::find_if(ends, [&](double end) { return end <= span.begin_ms + kRounding; });
    const auto place = static_cast<size_t>(free - ends.begin());
    const size_t stream = std::ranges::find(kOrder, std::string_view(span.lane)) - kOrder;
    const size_t lane = stream * kMostAtOnce + place;
    if (free == ends.end()) {
      ends.push_back(span.end_ms);
      const std::string more = place > 0 ? fmt::format(" {}", place + 1) : "";
      events_.push_back({{"ph", "M"},
                         {"name", "thread_name"},
                         {"pid", rank_},
                         {"tid", lane},
                         {"args", {{"name", fmt::format("{}{} (modelled)", span.lane, more)}}}});
    } else {
      *free = span.end_ms;
    }
    events_.push_back({{"ph", "X"},
                       {"cat", stream == 0 ? "user_annotation" : "modelled"},
                       {"name", span.name + " (modelled)"},
                       {"pid", rank_},
                       {"tid", lane},
                       {"ts", span.begin_ms * 1e3},
                       {"dur", (span.end_ms - span.begin_ms) * 1e3}});
  }

  int rank_;
  Json& events_;
  std::map<std::string_view, std::vector<double>> ends_;  // by stream: of its lanes' last spans
};

}  // namespace

Json chrome_trace(const std::vector<TraceSpan>& spans, int rank) {
  Json events = Json::array();
  std::map<int, std::vector<const TraceSpan*>> ranks;
  for (const TraceSpan& span : spans)
    if (rank < 0 || span.rank == rank) ranks[span.rank].push_back(&span);
  for (auto& [number, own] : ranks) {
    events.push_back({{"ph", "M"},
                      {"name", "process_name"},
                      {"pid", number},
                      {"args", {{"name", fmt::format("rank {} (modelled)", number)}}}});
    RankLanes(number, events).add(own);
  }
  return {{"modelled", true}, {"traceEvents", std::move(events)}};
}

}  // namespace moonshard::plan
