// The trace as lanes over time: zoom, pan, search, selection of a span or of a range, with a side
// pane of statistics. A frame costs what is on the screen, not what is in the trace.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "viewer/context.h"
#include "viewer/tracing/trace_boxes.h"
#include "viewer/tracing/trace_index.h"
#include "viewer/tracing/trace_path.h"
#include "viewer/tracing/trace_search.h"
#include "viewer/tracing/trace_stats.h"

namespace moonshard::viewer {

/// What is kept between frames because making it takes longer than a frame may.
struct TraceViewCache {
  /// A name as it is drawn.
  struct Label {
    std::string text;
    float width = 0;  ///< at font_size
    size_t tail = 0;  ///< where the part begins that is shown when there is little room
  };
  /// A strip of the lane area, from top to bottom.
  struct Strip {
    enum class Kind : uint8_t { RankHead, Lane, CounterHead, Counter };
    Kind kind = Kind::Lane;
    uint32_t index = 0;  ///< rank, lane or counter
    float y = 0, height = 0;
  };
  std::unordered_map<uint32_t, Label> labels;  ///< by name; made when first drawn
  std::vector<ImU32> colors;                   ///< by name; 0: not yet asked for
  std::vector<Strip> strips;
  float total_height = 0;
  bool strips_stale = true;
  float font_size = 0;
  Theme theme = Theme::Dark;
  /// Share of busy and exposed time per rank and column of the overview.
  struct OverviewCell {
    uint8_t busy = 0, exposed = 0;  ///< of 15
  };
  std::vector<OverviewCell> overview;
  size_t overview_columns = 0, overview_rows = 0;
  std::string searched;
  TraceSearch search;
  RangeSums whole, range_sums;
  bool whole_started = false;
  std::vector<TraceBox> boxes;  ///< scratch
  std::optional<SpanRef> self_of;
  double self_us = 0;
  /// Names in the order of the side pane's table.
  struct NameOrder {
    std::vector<uint32_t> places;
    size_t num_summed = 0;
    std::string searched;
    bool stale = true;
  } whole_order, range_order;
};

struct TraceViewState {
  TimeWindow window;  ///< shown; empty: all of it
  std::vector<uint8_t> lane_closed, rank_closed;
  bool counters_closed = false;
  std::optional<SpanRef> selected;
  std::optional<uint32_t> selected_name;  ///< whose statistics are shown
  std::optional<TimeWindow> range;
  char search[128] = "";
  bool show_pane = true;
  bool show_exposed = true;
  bool show_path = true;
  std::shared_ptr<const TracePath> path;  ///< null: not shown, or not read yet
  uint32_t path_file = 0;                 ///< whose it is, of the trace's files
  std::string path_error;
  float pane_share = 0.27f;  ///< of the panel's width
  // Under way between frames.
  std::optional<double> range_anchor_us;  ///< a range is being drawn
  bool dragged = false;                   ///< the mouse moved since it was pressed
  bool pressed_right = false;
  bool focus_search = false;
  std::optional<SpanRef> bring_into_view;
  std::string copied;  ///< what went to the clipboard, in words; the panel says it and clears it
  uint64_t num_looked = 0, num_boxes = 0;  ///< in the last frame, for tests
  ImVec2 chart_min, chart_max;             ///< where lanes were drawn, for tests
  float scroll_y = 0;                      ///< how far lanes are scrolled, for tests
  TraceViewCache cache;
};

/// Draws into the rest of the current window. The state belongs to this trace.
void draw_trace(const Trace& trace, const TraceIndex& index, TraceViewState& state,
                const UiStyle& style);

/// Shows a span in the middle of the window, with some room around it, and opens its lane.
void show_span(const Trace& trace, const TraceIndex& index, TraceViewState& state, SpanRef span);

}  // namespace moonshard::viewer
