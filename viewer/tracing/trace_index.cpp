#include "viewer/tracing/trace_index.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/check.h"

namespace moonshard::viewer {
namespace {

// Offsets are 32 bits wide; a trace file of 2 GiB holds fewer events.
constexpr uint64_t kMaxSpans = std::numeric_limits<uint32_t>::max() - 1;

void check_row(const Trace& trace, const TraceRow& row, size_t lane) {
  const size_t size = row.size();
  MS_CHECK(row.length_us.size() == size && row.name.size() == size && row.category.size() == size,
           "trace: expected columns of {} spans in lane {}, got {}, {} and {}; read the file again",
           size, lane, row.length_us.size(), row.name.size(), row.category.size());
  double last = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < size; ++i) {
    const double start = row.start_us[i];
    const float length = row.length_us[i];
    const bool good = start >= last && std::isfinite(start) && length >= 0 &&
                      std::isfinite(length) && row.name[i] < trace.names.size() &&
                      row.category[i] < trace.categories.size();
    MS_CHECK(good,
             "trace: expected finite spans in order with known names, got start {}, length {}, "
             "name {} at {} of lane {}; read the file again",
             start, length, row.name[i], i, lane);
    last = start;
  }
}

void list_rows(const Trace& trace, TraceIndex& index) {
  uint64_t num_spans = 0;
  for (size_t lane = 0; lane < trace.lanes.size(); ++lane) {
    index.lane_row.push_back(static_cast<uint32_t>(index.rows.size()));
    const std::vector<TraceRow>& rows = trace.lanes[lane].rows;
    for (size_t depth = 0; depth < rows.size(); ++depth) {
      check_row(trace, rows[depth], lane);
      num_spans += rows[depth].size();
      index.rows.push_back({static_cast<uint32_t>(lane), static_cast<uint32_t>(depth)});
    }
    if (index.ranks.empty() || index.ranks.back().rank != trace.lanes[lane].rank) {
      index.ranks.push_back({trace.lanes[lane].rank, static_cast<uint32_t>(lane), 0, {}, {}});
    }
    ++index.ranks.back().num_lanes;
    index.lane_rank.push_back(static_cast<uint32_t>(index.ranks.size() - 1));
  }
  MS_CHECK(num_spans <= kMaxSpans, "trace: expected at most {} events, got {}; record fewer steps",
           kMaxSpans, num_spans);
}

// Spans by name and row, by counting: one pass to learn the sizes, one to fill.
void group_by_name(const Trace& trace, TraceIndex& index) {
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  const size_t num_names = trace.names.size();
  index.names.assign(num_names, {});
  std::vector<uint32_t> num_groups(num_names, 0), last_row(num_names, kNone);
  for (uint32_t r = 0; r < index.rows.size(); ++r) {
    for (const uint32_t name : index.row(trace, r).name) {
      ++index.names[name].count;
      if (last_row[name] != r) ++num_groups[name];
      last_row[name] = r;
    }
  }
  index.name_group.resize(num_names + 1, 0);
  std::vector<uint32_t> next_span(num_names), next_group(num_names);
  uint32_t spans = 0, groups = 0;
  for (size_t name = 0; name < num_names; ++name) {
    index.name_group[name] = next_group[name] = groups;
    next_span[name] = spans;
    groups += num_groups[name];
    spans += index.names[name].count;
  }
  index.name_group[num_names] = groups;
  index.groups.resize(groups + 1);
  index.groups[groups].first_span = spans;
  index.group_spans.resize(spans);
  index.durations_us.resize(spans);
  std::ranges::fill(last_row, kNone);
  for (uint32_t r = 0; r < index.rows.size(); ++r) {
    const TraceRow& row = index.row(trace, r);
    for (uint32_t i = 0; i < row.size(); ++i) {
      const uint32_t name = row.name[i];
      if (last_row[name] != r) index.groups[next_group[name]++] = {r, next_span[name]};
      last_row[name] = r;
      index.group_spans[next_span[name]] = i;
      index.durations_us[next_span[name]++] = row.length_us[i];
    }
  }
}

void sum_names(const Trace& trace, TraceIndex& index) {
  index.before_us.resize(index.group_spans.size() + 1, 0);
  double sum = 0;
  for (size_t i = 0; i < index.durations_us.size(); ++i) {
    index.before_us[i] = sum;
    sum += static_cast<double>(index.durations_us[i]);
  }
  index.before_us.back() = sum;
  for (uint32_t name = 0; name < trace.names.size(); ++name) {
    const uint32_t first = index.first_span(name), last = index.last_span(name);
    NameTotals& totals = index.names[name];
    totals.total_us = totals.self_us = index.before_us[last] - index.before_us[first];
    std::sort(index.durations_us.begin() + first, index.durations_us.begin() + last);
  }
}

// Takes the time of each row's spans off the names of the spans they lie in.
void subtract_nested(const Trace& trace, TraceIndex& index) {
  for (const TraceLane& lane : trace.lanes) {
    for (size_t depth = 1; depth < lane.rows.size(); ++depth) {
      for_each_parent(lane.rows[depth - 1], lane.rows[depth], [&](size_t parent, size_t child) {
        const TraceRow &outer = lane.rows[depth - 1], &inner = lane.rows[depth];
        const double end = std::min(end_of(outer, parent), end_of(inner, child));
        index.names[outer.name[parent]].self_us -= std::max(0.0, end - inner.start_us[child]);
      });
    }
  }
  for (NameTotals& name : index.names) name.self_us = std::max(0.0, name.self_us);
}

CounterLevels make_levels(const TraceCounter& counter) {
  CounterLevels result;
  const auto finite = [](double value) { return std::isfinite(value) ? value : 0.0; };
  const std::vector<double>*low = &counter.value, *high = &counter.value;
  while (low->size() > 1 || result.levels.empty()) {
    CounterLevels::Level level;
    for (size_t i = 0; i < low->size(); i += CounterLevels::kFanOut) {
      const size_t end = std::min(low->size(), i + CounterLevels::kFanOut);
      double least = finite((*low)[i]), most = finite((*high)[i]);
      for (size_t k = i + 1; k < end; ++k) {
        least = std::min(least, finite((*low)[k]));
        most = std::max(most, finite((*high)[k]));
      }
      level.low.push_back(least);
      level.high.push_back(most);
    }
    result.levels.push_back(std::move(level));
    low = &result.levels.back().low;
    high = &result.levels.back().high;
  }
  if (!low->empty()) result.low = low->front(), result.high = high->front();
  return result;
}

}  // namespace

double TimePieces::covered_us(const TimeWindow& window) const {
  if (start_us_.empty() || !(window.end_us > window.start_us)) return 0;
  const auto before = [&](double time) {
    const auto after = std::ranges::upper_bound(start_us_, time);
    if (after == start_us_.begin()) return 0.0;
    const size_t i = static_cast<size_t>(after - start_us_.begin()) - 1;
    return std::min(before_us_[i + 1], before_us_[i] + (time - start_us_[i]));
  };
  return before(window.end_us) - before(window.start_us);
}

void TimePieces::append(double start_us, double end_us) {
  if (!(end_us > start_us)) return;
  if (!start_us_.empty()) {
    if (const double open = this->end_us(size() - 1); start_us <= open) {
      before_us_.back() += std::max(0.0, end_us - open);
      return;
    }
  }
  start_us_.push_back(start_us);
  before_us_.push_back(before_us_.back() + (end_us - start_us));
}

void TimePieces::shrink_to_fit() {
  start_us_.shrink_to_fit();
  before_us_.shrink_to_fit();
}

TraceIndex build_trace_index(const Trace& trace) {
  TraceIndex index;
  list_rows(trace, index);
  for (const std::string& name : trace.names) index.communication.push_back(is_communication(name));
  group_by_name(trace, index);
  sum_names(trace, index);
  subtract_nested(trace, index);
  for (const TraceLane& lane : trace.lanes) index.busy.push_back(busy_pieces(lane));
  find_exposed(trace, index);
  for (const TraceCounter& counter : trace.counters) {
    MS_CHECK(counter.time_us.size() == counter.value.size(),
             "trace: expected as many times as values of a counter, got {} and {}; read the file "
             "again",
             counter.time_us.size(), counter.value.size());
    index.counters.push_back(make_levels(counter));
  }
  return index;
}

}  // namespace moonshard::viewer
