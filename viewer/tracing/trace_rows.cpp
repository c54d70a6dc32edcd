// From events to lanes: one time axis for all files, lanes in an order that a person expects, and
// in each lane rows by nesting in which spans are sorted and never overlap.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "viewer/tracing/trace_events.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr double kSameTimeUs = 0.0015;  // clocks count whole nanoseconds; times are rounded
constexpr double kFarApartUs = 3600e6;  // files this far apart do not share a clock

// What Kineto writes about itself: a span over all that it recorded, a mark where it began, and one
// where its window ended, some time after the last work. None of it is work of the program, and the
// last mark would lengthen the trace.
class ProfilerMarks {
 public:
  ProfilerMarks(const RawTrace& raw, const std::vector<std::string>& names,
                const std::vector<std::string>& categories)
      : raw_(raw), names_(names), categories_(categories) {
    for (const RawLane& lane : raw.lanes) {
      may_hold_.push_back(lane.process == "Spans" || lane.process == "Traces" ||
                          (lane.process.empty() && lane.thread.empty()));
    }
    for (size_t lane = 0; lane < raw.lanes.size(); ++lane)
      for (const TraceEvent& event : raw.lanes[lane].events) count_ += is_mark(lane, event) ? 1 : 0;
    // A file of nothing else shows them: better than an empty panel.
    if (count_ == raw.num_events) count_ = 0;
  }
  uint64_t count() const { return count_; }
  bool contain(size_t lane, const TraceEvent& event) const {
    return count_ > 0 && is_mark(lane, event);
  }

 private:
  bool is_mark(size_t lane, const TraceEvent& event) const {
    if (!may_hold_[lane]) return false;
    const std::string& process = raw_.lanes[lane].process;
    const std::string& name = names_[event.name];
    if (process == "Spans") return categories_[event.category] == "Trace";
    if (process == "Traces") return name.starts_with("Iteration Start");
    return name == "Record Window End";
  }

  const RawTrace& raw_;
  const std::vector<std::string>&names_, &categories_;
  std::vector<char> may_hold_;  // by lane: most need no look at names
  uint64_t count_ = 0;
};

// From the first to the last event of each file, marks of the profiler left out.
void find_ends(RawTrace& raw, const ProfilerMarks& marks) {
  if (marks.count() == 0) return;
  for (TraceFile& file : raw.files) {
    file.first_us = HUGE_VAL;
    file.last_us = -HUGE_VAL;
  }
  for (size_t i = 0; i < raw.lanes.size(); ++i) {
    TraceFile& file = raw.files[raw.lanes[i].file];
    for (const TraceEvent& event : raw.lanes[i].events) {
      if (!marks.contain(i, event))
        file.include(event.start_us, event.start_us + std::max(event.length_us, 0.0));
    }
  }
  for (const RawCounter& counter : raw.counters) {
    for (const auto& [time, value] : counter.points) raw.files[counter.file].include(time, time);
  }
}

// Puts every file on the axis of the first. Ranks that ran together overlap; when their clocks
// disagree, each file starts at 0 and a problem is reported.
void align_files(RawTrace& raw) {
  std::vector<TraceFile*> used;
  for (TraceFile& file : raw.files) {
    if (file.first_us <= file.last_us) used.push_back(&file);
  }
  if (used.size() < 2) return;
  const auto with_base = static_cast<size_t>(
      std::ranges::count_if(used, [](const TraceFile* file) { return file->base_ns.has_value(); }));
  const bool all_have = with_base == used.size();
  bool comparable = all_have || with_base == 0;
  if (all_have) {
    const auto first_base = static_cast<long double>(*used[0]->base_ns);
    for (TraceFile* file : used) {
      file->shift_us =
          static_cast<double>((static_cast<long double>(*file->base_ns) - first_base) / 1000);
    }
  }
  const auto begin = [](const TraceFile* file) { return file->first_us + file->shift_us; };
  const auto end = [](const TraceFile* file) { return file->last_us + file->shift_us; };
  for (const TraceFile* file : used) {
    if (begin(file) - end(used[0]) > kFarApartUs || begin(used[0]) - end(file) > kFarApartUs) {
      comparable = false;
    }
  }
  if (comparable) return;
  for (TraceFile* file : used) file->shift_us = used[0]->first_us - file->first_us;
  raw.add_problem(
      "the files do not share a clock: each starts at 0, times between ranks cannot be compared");
}

double start_of_all(const RawTrace& raw) {
  double first = HUGE_VAL;
  for (const TraceFile& file : raw.files) {
    if (file.first_us <= file.last_us) first = std::min(first, file.first_us + file.shift_us);
  }
  return std::isfinite(first) ? first : 0;
}

// Spans that were begun and never ended reach to the end of their file.
void close_open_spans(RawTrace& raw) {
  size_t count = 0;
  for (RawLane& lane : raw.lanes) {
    count += lane.open.size();
    for (const uint32_t open : lane.open) {
      TraceEvent& event = lane.events[open];
      event.length_us = std::max(0.0, raw.files[lane.file].last_us - event.start_us);
    }
  }
  if (count > 0) {
    raw.add_problem(
        fmt::format("{} spans have no end; they are drawn to the end of the trace", count));
  }
}

// The largest length that, from start, does not reach beyond `end`, as the row's columns hold them.
float length_up_to(double start, double end) {
  auto length = static_cast<float>(std::max(0.0, end - start));
  for (int step = 0; start + static_cast<double>(length) > end; ++step) {
    length = step < 4 ? std::nextafterf(length, 0) : 0;
  }
  return length;
}

void append(TraceRow& row, const TraceEvent& event, double start) {
  // Rounding to whole nanoseconds and to float must not make neighbours overlap.
  if (row.size() > 0) {
    start = std::max(start, row.start_us.back());
    if (static_cast<double>(row.length_us.back()) > start - row.start_us.back()) {
      row.length_us.back() = length_up_to(row.start_us.back(), start);
    }
  }
  row.start_us.push_back(start);
  row.length_us.push_back(static_cast<float>(event.length_us));
  row.name.push_back(event.name);
  row.category.push_back(event.category);
}

// Returns how many events lay too deep.
uint64_t fill_rows(TraceLane& lane, std::vector<TraceEvent>& events, double origin_us) {
  const auto before = [](const TraceEvent& a, const TraceEvent& b) {
    return a.start_us != b.start_us ? a.start_us < b.start_us : a.length_us > b.length_us;
  };
  if (!std::ranges::is_sorted(events, before)) std::ranges::stable_sort(events, before);
  uint64_t num_deep = 0;
  std::vector<double> ends;  // of what still runs: an event lies one deeper
  for (const TraceEvent& event : events) {
    while (!ends.empty() && ends.back() <= event.start_us + kSameTimeUs) ends.pop_back();
    const size_t depth = ends.size();
    if (depth >= kMaxDepth) {
      ++num_deep;
      continue;
    }
    ends.push_back(event.start_us + event.length_us);
    if (depth == lane.rows.size()) lane.rows.emplace_back();
    append(lane.rows[depth], event, event.start_us - origin_us);
  }
  for (TraceRow& row : lane.rows) {
    row.start_us.shrink_to_fit();
    row.length_us.shrink_to_fit();
    row.name.shrink_to_fit();
    row.category.shrink_to_fit();
  }
  return num_deep;
}

// A pid or tid as a number, for sorting: 2 before 10.
double as_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return !text.empty() && end == text.c_str() + text.size() && std::isfinite(value) ? value : 1e300;
}

// Rank; threads of the host, streams, then what the profiler says about itself; index, number and
// name of the process; the same of the thread.
using LaneOrder =
    std::tuple<int64_t, int, double, double, std::string, double, double, std::string>;

TraceLabel label_of(const RawTrace& raw, uint32_t file, const std::string& process,
                    const std::string& thread) {
  const auto found = raw.labels.find({file, process, thread});
  return found != raw.labels.end() ? found->second : TraceLabel();
}

LaneOrder name_lane(const RawTrace& raw, const RawLane& from, TraceLane& lane) {
  const TraceLabel process = label_of(raw, from.file, from.process, "");
  const TraceLabel thread = label_of(raw, from.file, from.process, from.thread);
  lane.rank = raw.files[from.file].rank;
  lane.file = from.file;
  lane.key = lane_key(from.process, from.thread);
  lane.gpu = from.num_gpu_events * 2 > from.events.size();
  const bool numbered = as_number(from.process) < 1e300;
  const bool of_profiler = as_number(from.process) < 0;  // Kineto's own work has process -1
  lane.process = of_profiler ? "profiler" : process.name;
  if (lane.gpu) lane.process = process.labels.empty() ? "GPU " + from.process : process.labels;
  if (lane.process.empty()) {
    lane.process =
        from.process.empty() ? "whole trace" : (numbered ? "process " : "") + from.process;
  }
  lane.thread = thread.name;
  while (lane.thread.ends_with(' ')) lane.thread.pop_back();
  if (lane.thread.empty()) {
    const bool named = as_number(from.thread) >= 1e300;
    lane.thread = from.thread.empty() ? "marks"
                  : named             ? from.thread
                  : of_profiler       ? "profiler's own work"
                                      : (lane.gpu ? "stream " : "thread ") + from.thread;
  }
  return {lane.rank,
          lane.gpu                   ? 1
          : numbered && !of_profiler ? 0
                                     : 2,
          process.sort_index,
          as_number(from.process),
          from.process,
          thread.sort_index,
          as_number(from.thread),
          from.thread};
}

std::vector<TraceCounter> make_counters(RawTrace& raw, double origin_us) {
  std::vector<TraceCounter> counters;
  for (RawCounter& from : raw.counters) {
    const TraceFile& file = raw.files[from.file];
    TraceCounter counter;
    counter.name = raw.files.size() > 1 && file.rank >= 0
                       ? fmt::format("rank {}: {}", file.rank, from.name)
                       : from.name;
    std::ranges::stable_sort(from.points,
                             [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [time, value] : from.points) {
      counter.time_us.push_back(time + file.shift_us - origin_us);
      counter.value.push_back(value);
    }
    std::vector<std::pair<double, double>>().swap(from.points);
    counters.push_back(std::move(counter));
  }
  return counters;
}

void say_what_was_dropped(RawTrace& raw, uint64_t num_deep) {
  const auto say = [&](uint64_t count, const char* what) {
    if (count > 0) raw.add_problem(fmt::format("{} events {}", count, what));
  };
  say(raw.num_bad_times, "have no time that makes sense; they are not shown");
  say(raw.num_unmatched_ends, "end a span that never began");
  say(raw.num_lane_overflow, "belong to more threads than are shown");
  say(num_deep, "are nested deeper than 64 levels; they are not shown");
  if (raw.names.is_full()) raw.add_problem("too many different names: the rest shares one");
}

}  // namespace

Trace make_trace(RawTrace raw) {
  Trace trace;
  trace.names = raw.names.take();
  trace.categories = raw.categories.take();
  const ProfilerMarks marks(raw, trace.names, trace.categories);
  find_ends(raw, marks);
  align_files(raw);
  close_open_spans(raw);
  const double origin = start_of_all(raw);
  trace.counters = make_counters(raw, origin);

  std::vector<std::pair<LaneOrder, TraceLane>> lanes;
  uint64_t num_deep = 0;
  for (size_t i = 0; i < raw.lanes.size(); ++i) {
    TraceLane lane;
    LaneOrder place = name_lane(raw, raw.lanes[i], lane);
    const double shift = raw.files[raw.lanes[i].file].shift_us;
    lane.origin_us = origin - shift;
    std::vector<TraceEvent> events = std::move(raw.lanes[i].events);
    std::erase_if(events, [&](const TraceEvent& event) { return marks.contain(i, event); });
    num_deep += fill_rows(lane, events, origin - shift);
    if (!lane.rows.empty()) lanes.emplace_back(std::move(place), std::move(lane));
  }
  std::ranges::stable_sort(lanes, [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [place, lane] : lanes) trace.lanes.push_back(std::move(lane));

  for (const TraceFile& file : raw.files) {
    if (file.first_us <= file.last_us) {
      trace.length_us = std::max(trace.length_us, file.last_us + file.shift_us - origin);
    }
  }
  trace.num_events = raw.num_events - num_deep - marks.count();
  trace.num_skipped = raw.num_skipped + raw.num_unmatched_ends + num_deep + marks.count();
  say_what_was_dropped(raw, num_deep);
  trace.problems = std::move(raw.problems);
  return trace;
}

}  // namespace moonshard::viewer
