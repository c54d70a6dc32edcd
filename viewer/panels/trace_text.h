// Times, ruler ticks and copied statistics of the trace panel as text.
#pragma once

#include <string>
#include <vector>

#include "viewer/tracing/trace_index.h"
#include "viewer/tracing/trace_stats.h"

namespace moonshard::viewer {

/// "0", "850 ns", "12.34 us", "3.2 ms", "1.25 s": four digits.
std::string format_time(double time_us);

struct RulerTick {
  double time_us = 0;
  std::string text;
};
/// Ticks at round times, at most max_ticks. Text has one unit and as many digits as tell
/// neighbours apart.
std::vector<RulerTick> ruler_ticks(const TimeWindow& window, size_t max_ticks);

/// "rank 0", or the process's name where no rank is said.
std::string rank_title(const Trace& trace, const TraceRank& rank);

enum class TextStyle { Plain, Markdown };

/// What the side pane shows, for the clipboard.
std::string statistics_text(const Trace& trace, const TraceIndex& index, uint32_t name,
                            TextStyle style);
std::string sums_text(const Trace& trace, const TraceIndex& index, const RangeSums& sums,
                      TextStyle style);

}  // namespace moonshard::viewer
