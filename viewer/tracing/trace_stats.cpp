#include "viewer/tracing/trace_stats.h"

#include <algorithm>
#include <cmath>

#include "viewer/tracing/trace_index.h"

namespace moonshard::viewer {
namespace {

// Between the two nearest values, as NumPy's percentile does it.
double quantile(const std::vector<float>& sorted, size_t first, size_t count, double share) {
  const double place = share * static_cast<double>(count - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, count - 1);
  const double low = static_cast<double>(sorted[first + below]);
  const double high = static_cast<double>(sorted[first + above]);
  return low + (high - low) * (place - static_cast<double>(below));
}

// Spans of one group that touch a range: how many, and their time inside.
RangeSums::Name sum_group(const Trace& trace, const TraceIndex& index, uint32_t group,
                          const TimeWindow& range) {
  const TraceRow& row = index.row(trace, index.groups[group].row);
  const auto spans = index.group_spans.begin();
  const auto begin = spans + index.groups[group].first_span;
  const auto end = spans + index.groups[group + 1].first_span;
  const auto starts_before = [&](uint32_t span, double time) { return row.start_us[span] < time; };
  auto first = std::lower_bound(begin, end, range.start_us, starts_before);
  const auto last = std::lower_bound(first, end, range.end_us, starts_before);
  if (first != begin && end_of(row, *(first - 1)) > range.start_us) --first;
  RangeSums::Name sum;
  if (first == last) return sum;
  sum.count = static_cast<uint32_t>(last - first);
  sum.total_us = index.before_us[static_cast<size_t>(last - spans)] -
                 index.before_us[static_cast<size_t>(first - spans)];
  sum.total_us -= std::max(0.0, range.start_us - row.start_us[*first]);
  sum.total_us -= std::max(0.0, end_of(row, *(last - 1)) - range.end_us);
  return sum;
}

}  // namespace

NameStatistics name_statistics(const TraceIndex& index, uint32_t name) {
  const NameTotals& totals = index.names[name];
  NameStatistics result{totals};
  if (totals.count == 0) return result;
  const size_t first = index.first_span(name);
  result.mean_us = totals.total_us / totals.count;
  result.min_us = static_cast<double>(index.durations_us[first]);
  result.max_us = static_cast<double>(index.durations_us[first + totals.count - 1]);
  result.median_us = quantile(index.durations_us, first, totals.count, 0.5);
  result.p95_us = quantile(index.durations_us, first, totals.count, 0.95);
  return result;
}

double name_time_on_lane(const TraceIndex& index, uint32_t name, uint32_t lane) {
  double sum = 0;
  const auto before = [&](uint32_t group) {
    return index.before_us[index.groups[group].first_span];
  };
  for (uint32_t g = index.name_group[name]; g < index.name_group[name + 1]; ++g) {
    if (index.rows[index.groups[g].row].lane == lane) sum += before(g + 1) - before(g);
  }
  return sum;
}

double self_time(const Trace& trace, const TraceIndex& index, SpanRef span) {
  const TraceRow& row = index.row(trace, span.row);
  double rest = static_cast<double>(row.length_us[span.index]);
  const TraceIndex::Row place = index.rows[span.row];
  const std::vector<TraceRow>& rows = trace.lanes[place.lane].rows;
  if (place.depth + 1 >= rows.size()) return rest;
  const TraceRow& below = rows[place.depth + 1];
  const double start = row.start_us[span.index], end = end_of(row, span.index);
  const auto first = std::ranges::lower_bound(below.start_us, start);
  for (size_t i = static_cast<size_t>(first - below.start_us.begin());
       i < below.size() && below.start_us[i] < end; ++i) {
    rest -= std::min(end, end_of(below, i)) - below.start_us[i];
  }
  return std::max(0.0, rest);
}

DurationHistogram duration_histogram(const TraceIndex& index, uint32_t name, size_t max_bins) {
  DurationHistogram result;
  const auto first = index.durations_us.begin() + index.first_span(name);
  const auto last = index.durations_us.begin() + index.last_span(name);
  if (first == last) return result;
  // Zeros (instants) have no logarithm: they share the first bin.
  const auto positive = std::upper_bound(first, last, 0.0f);
  if (positive == last || *positive == *(last - 1)) {
    const double only = positive == last ? 0 : static_cast<double>(*positive);
    result.edges_us = {only, only};
    result.counts = {static_cast<uint32_t>(last - first)};
    return result;
  }
  const double low = std::log10(static_cast<double>(*positive));
  const double high = std::log10(static_cast<double>(*(last - 1)));
  const double wanted = std::ceil(std::sqrt(static_cast<double>(last - first)) * 2);
  const size_t num_bins =
      static_cast<size_t>(std::clamp(wanted, 4.0, static_cast<double>(max_bins)));
  auto from = first;
  for (size_t bin = 0; bin <= num_bins; ++bin) {
    const double share = static_cast<double>(bin) / static_cast<double>(num_bins);
    result.edges_us.push_back(std::pow(10.0, low + (high - low) * share));
    if (bin == 0) continue;
    const auto to = bin == num_bins
                        ? last
                        : std::lower_bound(from, last, static_cast<float>(result.edges_us.back()));
    result.counts.push_back(static_cast<uint32_t>(to - from));
    from = to;
  }
  return result;
}

RangeSums::RangeSums(const TraceIndex& index, const TimeWindow& range) : range_(range) {
  for (uint32_t lane = 0; lane < index.busy.size(); ++lane) {
    const double busy_us = index.busy[lane].covered_us(range);
    if (busy_us > 0) lanes_.push_back({lane, busy_us});
  }
  for (const TraceRank& rank : index.ranks) {
    ranks_.push_back({rank.communication.covered_us(range), rank.exposed.covered_us(range)});
  }
}

bool RangeSums::step(const Trace& trace, const TraceIndex& index, size_t max_groups) {
  if (done_) return true;
  size_t num_groups = 0;
  for (; next_name_ < index.names.size() && num_groups < max_groups; ++next_name_) {
    Name sum{next_name_, 0, 0};
    for (uint32_t g = index.name_group[next_name_]; g < index.name_group[next_name_ + 1]; ++g) {
      const Name part = sum_group(trace, index, g, range_);
      sum.count += part.count;
      sum.total_us += part.total_us;
      ++num_groups;
    }
    if (sum.count > 0) names_.push_back(sum);
  }
  if (next_name_ < index.names.size()) return false;
  std::ranges::sort(names_, [](const Name& a, const Name& b) {
    return a.total_us != b.total_us ? a.total_us > b.total_us : a.name < b.name;
  });
  done_ = true;
  return true;
}

}  // namespace moonshard::viewer
