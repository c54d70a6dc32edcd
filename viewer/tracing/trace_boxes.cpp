#include "viewer/tracing/trace_boxes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "viewer/tracing/trace_index.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kSamples = 4;  // spans of a crowded box that are asked for its colour

// First place at or after from whose start is not before time. Steps that double, then bisection:
// the place is usually near.
template <typename Start>
size_t first_not_before(size_t size, size_t from, double time, const Start& start,
                        size_t& num_looked, size_t step = 1) {
  size_t low = from, high = from;
  while (high < size && start(high) < time) {
    ++num_looked;
    low = high + 1;
    high += step;
    step *= 2;
  }
  high = std::min(high, size);
  while (low < high) {
    ++num_looked;
    const size_t middle = low + (high - low) / 2;
    start(middle) < time ? low = middle + 1 : high = middle;
  }
  return low;
}

template <typename Start, typename End>
size_t make_boxes(size_t size, const Start& start, const End& end, const TimeScale& scale,
                  double min_width, std::vector<TraceBox>& boxes) {
  boxes.clear();
  size_t num_looked = 0;
  if (!(scale.window.length_us() > 0) || !(scale.width > 0)) return 0;
  const double stretch_us = min_width / scale.pixels_per_us();
  size_t i = first_not_before(size, 0, scale.window.start_us, start, num_looked);
  if (i > 0 && end(i - 1) > scale.window.start_us) --i;
  const auto add = [&](size_t first, size_t count, size_t shown, double from, double to,
                       double fill) {
    const double x0 = std::clamp(scale.x_of(from), 0.0, scale.width);
    const double x1 = std::clamp(scale.x_of(to), x0, scale.width);
    boxes.push_back({static_cast<float>(x0), static_cast<float>(x1), static_cast<uint32_t>(first),
                     static_cast<uint32_t>(count), static_cast<float>(std::min(fill, 1.0)),
                     static_cast<uint32_t>(shown)});
  };
  size_t last_count = 1;  // the next crowd is about as large
  while (i < size && start(i) < scale.window.end_us) {
    ++num_looked;
    const double from = start(i);
    if (end(i) - from >= stretch_us) {
      add(i, 1, i, from, end(i), 1);
      ++i;
      continue;
    }
    const double stretch_end = (std::floor(from / stretch_us) + 1) * stretch_us;
    // Far into a long trace a stretch may be smaller than a double can tell: then one by one.
    size_t next = std::max(i + 1, first_not_before(size, i, stretch_end, start, num_looked,
                                                   std::max<size_t>(1, last_count / 2)));
    // Only the last span that starts in the stretch can be wide enough for a box of its own.
    if (next - 1 > i && end(next - 1) - start(next - 1) >= stretch_us) --next;
    size_t shown = i;
    const size_t count = next - i, num_samples = std::min(count, kSamples);
    double sampled_us = 0;
    for (size_t sample = 0; sample < num_samples; ++sample) {
      const size_t place = i + (count - 1) * sample / std::max<size_t>(num_samples - 1, 1);
      const double length = end(place) - start(place);
      sampled_us += length;
      ++num_looked;
      if (length > end(shown) - start(shown)) shown = place;
    }
    const double filled_us =
        sampled_us * static_cast<double>(count) / static_cast<double>(num_samples);
    add(i, count, shown, from, end(next - 1), filled_us / stretch_us);
    last_count = count;
    i = next;
  }
  return num_looked;
}

}  // namespace

size_t find_boxes(const TraceRow& row, const TimeScale& scale, double min_width,
                  std::vector<TraceBox>& boxes) {
  return make_boxes(
      row.size(), [&](size_t i) { return row.start_us[i]; },
      [&](size_t i) { return end_of(row, i); }, scale, min_width, boxes);
}

size_t find_boxes(const TimePieces& pieces, const TimeScale& scale, double min_width,
                  std::vector<TraceBox>& boxes) {
  return make_boxes(
      pieces.size(), [&](size_t i) { return pieces.start_us(i); },
      [&](size_t i) { return pieces.end_us(i); }, scale, min_width, boxes);
}

std::optional<uint32_t> span_at(const TraceRow& row, double time_us, double slack_us) {
  const auto& starts = row.start_us;
  const auto place = [&](double time) {
    return static_cast<size_t>(std::ranges::lower_bound(starts, time) - starts.begin());
  };
  size_t first = place(time_us - slack_us);
  const size_t last = place(time_us + slack_us);
  // A span that covers the exact point wins over neighbours, however long they are.
  const size_t covering = place(std::nextafter(time_us, std::numeric_limits<double>::infinity()));
  if (covering > 0 && end_of(row, covering - 1) >= time_us) {
    return static_cast<uint32_t>(covering - 1);
  }
  if (first > 0 && end_of(row, first - 1) >= time_us - slack_us) --first;
  std::optional<uint32_t> best;
  constexpr size_t kMost = 64;  // a click between thousands of spans takes any of them
  for (size_t i = first; i < std::min(last, first + kMost); ++i) {
    if (!best || row.length_us[i] > row.length_us[*best]) best = static_cast<uint32_t>(i);
  }
  return best;
}

std::optional<ValueRange> counter_range(const TraceCounter& counter, const CounterLevels& levels,
                                        const TimeWindow& window) {
  const auto& times = counter.time_us;
  size_t first =
      static_cast<size_t>(std::ranges::upper_bound(times, window.start_us) - times.begin());
  size_t last = static_cast<size_t>(std::ranges::lower_bound(times, window.end_us) - times.begin());
  if (first > 0) --first;  // a value stands until the next one
  last = std::max(last, first + 1);
  if (times.empty() || times[first] >= window.end_us) return std::nullopt;
  ValueRange range{std::numeric_limits<double>::infinity(),
                   -std::numeric_limits<double>::infinity()};
  const auto take = [&](double low, double high) {
    range.low = std::min(range.low, low);
    range.high = std::max(range.high, high);
  };
  const auto value = [&](size_t i) {
    return std::isfinite(counter.value[i]) ? counter.value[i] : 0.0;
  };
  constexpr size_t kFan = CounterLevels::kFanOut;
  // Single samples up to a block's edge, then whole blocks, level by level, from both ends.
  for (; first < last && first % kFan != 0; ++first) take(value(first), value(first));
  for (; first < last && last % kFan != 0; --last) take(value(last - 1), value(last - 1));
  for (size_t level = 0; first < last; ++level) {
    first /= kFan;
    last /= kFan;
    const CounterLevels::Level& blocks = levels.levels[level];
    const bool top = level + 1 == levels.levels.size();
    for (; first < last && (top || first % kFan != 0); ++first) {
      take(blocks.low[first], blocks.high[first]);
    }
    for (; first < last && last % kFan != 0; --last) {
      take(blocks.low[last - 1], blocks.high[last - 1]);
    }
  }
  return range;
}

}  // namespace moonshard::viewer
