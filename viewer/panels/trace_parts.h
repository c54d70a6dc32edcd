// Pieces that draw_trace is made of, one file each.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "viewer/panels/trace_view.h"

namespace moonshard::viewer {

/// One frame's knowledge, handed to every piece.
struct TraceFrame {
  const Trace& trace;
  const TraceIndex& index;
  TraceViewState& state;
  const UiStyle& style;
  float em = 14;
  float gutter = 150;         ///< width of the lane names
  TimeScale scale;            ///< window of time over the chart's width
  double min_box = 2;         ///< pixels; narrower spans join their neighbours
  float chart_x = 0;          ///< screen x of the chart's left edge
  bool mouse_inside = false;  ///< the chart
  float row_height() const { return em * 1.25f; }
  float left() const { return chart_x - gutter; }  ///< of the lane names
  float right() const { return chart_x + static_cast<float>(scale.width); }
  float x_of(double time_us) const {
    return chart_x + static_cast<float>(std::clamp(scale.x_of(time_us), -1e6, 1e6));
  }
  double time_at(float x) const { return scale.time_at(static_cast<double>(x - chart_x)); }
};

/// What the mouse is over.
struct TraceHover {
  std::optional<SpanRef> span;
  uint32_t count = 1;  ///< spans that share the box
  std::optional<uint32_t> counter;
};

// trace_names.cpp: how names look
const TraceViewCache::Label& name_label(const TraceFrame& frame, uint32_t name);
ImU32 name_color(const TraceFrame& frame, uint32_t name);
/// "pt_gloo_runloop 23482", "stream 7".
std::string lane_title(const Trace& trace, uint32_t lane);
/// self_time of the span that was asked for last is kept: it may have a million spans in it.
double kept_self_time(const TraceFrame& frame, SpanRef span);
void span_tooltip(const TraceFrame& frame, const TraceHover& hover);

// trace_lanes.cpp, trace_counters.cpp: strips of the lane area
void make_strips(const TraceFrame& frame);
/// The strip at a height below the first strip's top.
const TraceViewCache::Strip* strip_at(const TraceViewState& state, float y);
/// Draws the strips between the two screen heights; origin_y is where the first one starts.
TraceHover draw_strips(const TraceFrame& frame, float origin_y, float top, float bottom);
/// A head with an arrow, across the names and the chart.
void draw_head(const TraceFrame& frame, float top, float height, const std::string& title,
               bool closed);
/// Text from a place on, shortened in its middle where it would reach beyond right.
void draw_clipped(const TraceFrame& frame, ImVec2 at, float right, ImU32 color,
                  const std::string& text);
void draw_counter(const TraceFrame& frame, uint32_t counter, float top, float height);
void counter_tooltip(const TraceFrame& frame, uint32_t counter, double time_us);

// trace_path.cpp
/// What a lane needs below its rows for the path.
float path_height(const TraceFrame& frame);
void draw_path(const TraceFrame& frame, float origin_y, float top, float bottom);
void draw_path_sums(const TraceFrame& frame);

// trace_ruler.cpp
void draw_overview(const TraceFrame& frame, float height);
void draw_ruler(const TraceFrame& frame, float height);
void draw_grid(const TraceFrame& frame, float top, float bottom);
void draw_range(const TraceFrame& frame, float top, float bottom);

// trace_input.cpp
void clamp_window(const Trace& trace, TimeWindow& window);
void zoom_window(const Trace& trace, TimeWindow& window, double around_us, double factor);
void go_to_hit(const TraceFrame& frame, bool forward);
void handle_keys(const TraceFrame& frame);
/// Wheel and drag over the item just submitted. Call before drawing, so that the frame follows.
void navigate(TraceFrame& frame);
/// Click, double click and menu on what the mouse is over.
void pick(const TraceFrame& frame, bool released, const TraceHover& hover);
void toggle_strip(const TraceFrame& frame, float y);

// trace_pane.cpp, trace_pane_names.cpp
void draw_pane(const TraceFrame& frame);
void draw_name_table(const TraceFrame& frame, const char* id, const RangeSums& sums,
                     TraceViewCache::NameOrder& order, bool with_self);

}  // namespace moonshard::viewer
