// What to draw of a row, of pieces of time and of a counter for a window of time and a width in
// pixels. Costs O(pixels * log n): spans too narrow to see are passed over by binary search and
// become one box with a count.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "viewer/tracing/trace_index.h"

namespace moonshard::viewer {

/// A window of time on the screen.
struct TimeScale {
  TimeWindow window;
  double width = 1;  ///< pixels

  double pixels_per_us() const { return width / window.length_us(); }
  double x_of(double time_us) const { return (time_us - window.start_us) * pixels_per_us(); }
  double time_at(double x) const { return window.start_us + x / pixels_per_us(); }
};

struct TraceBox {
  float x0 = 0, x1 = 0;  ///< pixels from the window's left edge, cut off at its edges
  uint32_t first = 0;    ///< first span of the row
  uint32_t count = 0;    ///< spans in the box; 1: exactly this span
  float fill = 1;        ///< about how much of a joined box its spans cover, 0 to 1
  uint32_t shown = 0;    ///< the span whose colour the box has: one of the longer ones
};

/// Boxes from left to right. Spans narrower than min_width pixels join their neighbours in the same
/// stretch of that width; the stretches are fixed in time, so that panning does not flicker.
/// Returns how many spans were looked at.
size_t find_boxes(const TraceRow& row, const TimeScale& scale, double min_width,
                  std::vector<TraceBox>& boxes);
size_t find_boxes(const TimePieces& pieces, const TimeScale& scale, double min_width,
                  std::vector<TraceBox>& boxes);

/// The span at a time, or the nearest one within slack_us of it; the longest of those that are
/// closer together than that.
std::optional<uint32_t> span_at(const TraceRow& row, double time_us, double slack_us);

/// Lowest and highest value of a counter in [start, end); before its first sample: nothing.
struct ValueRange {
  double low = 0, high = 0;
};
std::optional<ValueRange> counter_range(const TraceCounter& counter, const CounterLevels& levels,
                                        const TimeWindow& window);

}  // namespace moonshard::viewer
