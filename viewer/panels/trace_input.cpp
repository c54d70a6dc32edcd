// Mouse and keys of the trace: what they do to the window of time, the selection and the range.
#include <algorithm>
#include <cmath>

#include <imgui.h>
#include <imgui_internal.h>

#include "viewer/panels/trace_parts.h"
#include "viewer/tracing/trace_index.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

constexpr double kShortestWindow_us = 0.01;
constexpr double kMargin = 0.01;  // of the trace, that one may look past its ends
constexpr double kWheelStep = 1.25, kKeyStep = 1.4, kPanStep = 0.2;

void select(TraceViewState& state, const TraceFrame& frame, SpanRef span) {
  state.selected = span;
  state.selected_name = frame.index.row(frame.trace, span.row).name[span.index];
}

void zoom_to(const TraceFrame& frame, const TimeWindow& part) {
  const double room = std::max(part.length_us() * 0.12, kShortestWindow_us);
  frame.state.window = {part.start_us - room, part.end_us + room};
  clamp_window(frame.trace, frame.state.window);
}

void pan_window(const TraceFrame& frame, double by_us) {
  TimeWindow& window = frame.state.window;
  window = {window.start_us + by_us, window.end_us + by_us};
  clamp_window(frame.trace, window);
}

TimeWindow window_of(const TraceFrame& frame, SpanRef span) {
  const TraceRow& row = frame.index.row(frame.trace, span.row);
  return {row.start_us[span.index], end_of(row, span.index)};
}

void draw_menu(const TraceFrame& frame) {
  if (!ImGui::BeginPopup("##trace_menu")) return;
  TraceViewState& state = frame.state;
  if (state.selected) {
    const TraceRow& row = frame.index.row(frame.trace, state.selected->row);
    const std::string& name = frame.trace.names[row.name[state.selected->index]];
    if (ImGui::MenuItem("Zoom to this span")) zoom_to(frame, window_of(frame, *state.selected));
    if (ImGui::MenuItem("Make it the range")) state.range = window_of(frame, *state.selected);
    if (ImGui::MenuItem("Find this name")) {
      name.copy(state.search, sizeof state.search - 1);
      state.search[std::min(name.size(), sizeof state.search - 1)] = '\0';
    }
    if (ImGui::MenuItem("Copy name")) {
      ImGui::SetClipboardText(clean_text(name).c_str());
      state.copied = "the name";
    }
    ImGui::Separator();
  }
  if (state.range) {
    if (ImGui::MenuItem("Zoom to the range")) zoom_to(frame, *state.range);
    if (ImGui::MenuItem("Clear the range", "Esc")) state.range.reset();
    ImGui::Separator();
  }
  if (ImGui::MenuItem("Show all", "0")) state.window = {};
  const auto close_all = [&](uint8_t closed) {
    std::ranges::fill(state.lane_closed, closed);
    std::ranges::fill(state.rank_closed, uint8_t{0});
    state.cache.strips_stale = true;
  };
  if (ImGui::MenuItem("Fold all lanes")) close_all(1);
  if (ImGui::MenuItem("Unfold all lanes")) close_all(0);
  ImGui::MenuItem("Shade exposed communication", nullptr, &state.show_exposed);
  ImGui::EndPopup();
}

}  // namespace

void clamp_window(const Trace& trace, TimeWindow& window) {
  const double whole = std::max(trace.length_us, kShortestWindow_us);
  const double margin = whole * kMargin;
  const double length = std::clamp(window.length_us(), kShortestWindow_us, whole + 2 * margin);
  if (!std::isfinite(window.start_us) || !std::isfinite(window.end_us) ||
      !(window.length_us() > 0)) {
    window = {-margin, whole + margin};
    return;
  }
  const double middle = (window.start_us + window.end_us) / 2;
  const double start =
      std::clamp(middle - length / 2, -margin, std::max(-margin, whole + margin - length));
  window = {start, start + length};
}

void zoom_window(const Trace& trace, TimeWindow& window, double around_us, double factor) {
  // Clamp the length before moving the ends, so that the time under the mouse stays there.
  const double whole = std::max(trace.length_us, kShortestWindow_us) * (1 + 2 * kMargin);
  const double length = std::clamp(window.length_us() * factor, kShortestWindow_us, whole);
  const double share = (around_us - window.start_us) / window.length_us();
  window.start_us = around_us - share * length;
  window.end_us = window.start_us + length;
  clamp_window(trace, window);
}

void show_span(const Trace& trace, const TraceIndex& index, TraceViewState& state, SpanRef span) {
  const TraceRow& row = index.row(trace, span.row);
  const double start = row.start_us[span.index];
  const double length = static_cast<double>(row.length_us[span.index]);
  state.selected = span;
  state.selected_name = row.name[span.index];
  state.bring_into_view = span;
  // Stay at this zoom where the span can be seen in it.
  const double now = state.window.length_us();
  const bool visible = start >= state.window.start_us && start + length <= state.window.end_us;
  if (visible && length >= now * 0.004) return;
  const double wanted = length < now * 0.004 || length > now * 0.8 ? length * 8 : now;
  const double middle = start + length / 2;
  const double half = std::max(wanted, kShortestWindow_us) / 2;
  state.window = {middle - half, middle + half};
  clamp_window(trace, state.window);
}

void go_to_hit(const TraceFrame& frame, bool forward) {
  TraceViewState& state = frame.state;
  const TraceSearch& search = state.cache.search;
  if (!search.active() || search.num_hits() == 0) return;
  const auto beside = [&](std::optional<SpanRef> from) {
    return forward ? search.next(frame.trace, frame.index, from)
                   : search.previous(frame.trace, frame.index, from);
  };
  std::optional<SpanRef> hit =
      !state.selected && forward
          ? search.first_from(frame.trace, frame.index, state.window.start_us)
          : beside(state.selected);
  if (!hit) hit = beside(std::nullopt);  // past the end: from the other one
  if (hit) show_span(frame.trace, frame.index, state, *hit);
}

void handle_keys(const TraceFrame& frame) {
  TraceViewState& state = frame.state;
  TimeWindow& window = state.window;
  const auto pressed = [](ImGuiKeyChord chord) {
    return ImGui::Shortcut(chord, ImGuiInputFlags_Repeat);
  };
  const double middle = (window.start_us + window.end_us) / 2;
  const double step = window.length_us() * kPanStep;
  if (pressed(ImGuiKey_W)) zoom_window(frame.trace, window, middle, 1 / kKeyStep);
  if (pressed(ImGuiKey_S)) zoom_window(frame.trace, window, middle, kKeyStep);
  if (pressed(ImGuiKey_A)) pan_window(frame, -step);
  if (pressed(ImGuiKey_D)) pan_window(frame, step);
  if (pressed(ImGuiKey_N) || pressed(ImGuiKey_F3)) go_to_hit(frame, true);
  if (pressed(ImGuiKey_P) || pressed(ImGuiMod_Shift | ImGuiKey_F3)) go_to_hit(frame, false);
  if (ImGui::Shortcut(ImGuiKey_F) || ImGui::Shortcut(ImGuiMod_Ctrl | ImGuiKey_F)) {
    state.focus_search = true;
  }
  if (ImGui::Shortcut(ImGuiKey_0) || ImGui::Shortcut(ImGuiKey_Home)) {
    window = {};
    clamp_window(frame.trace, window);
  }
  if (ImGui::Shortcut(ImGuiKey_Escape)) {
    // One thing at a time: what was chosen last goes first.
    if (state.range) {
      state.range.reset();
    } else if (state.selected || state.selected_name) {
      state.selected.reset();
      state.selected_name.reset();
    } else {
      state.search[0] = '\0';
    }
  }
}

void navigate(TraceFrame& frame) {
  TraceViewState& state = frame.state;
  const ImGuiIO& io = ImGui::GetIO();
  const double mouse_us = frame.time_at(io.MousePos.x);
  if (ImGui::IsItemHovered()) {
    ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelY);
    ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelX);
    if (io.MouseWheel != 0 && io.KeyShift) {
      ImGui::SetScrollY(ImGui::GetScrollY() - io.MouseWheel * 3 * frame.row_height());
    } else if (io.MouseWheel != 0) {
      zoom_window(frame.trace, state.window, mouse_us,
                  std::pow(kWheelStep, static_cast<double>(-io.MouseWheel)));
    }
    if (io.MouseWheelH != 0) {
      pan_window(frame, state.window.length_us() * 0.08 * static_cast<double>(-io.MouseWheelH));
    }
  }
  if (ImGui::IsItemActivated()) {
    state.dragged = false;
    state.pressed_right = io.MouseDown[ImGuiMouseButton_Right];
    state.range_anchor_us.reset();
    if (state.pressed_right || io.KeyShift) state.range_anchor_us = mouse_us;
  }
  if (ImGui::IsItemActive()) {
    const int button = state.pressed_right ? ImGuiMouseButton_Right : ImGuiMouseButton_Left;
    if (ImGui::IsMouseDragging(button, 3.0f)) state.dragged = true;
    if (state.dragged && state.range_anchor_us) {
      const double end = std::clamp(mouse_us, 0.0, frame.trace.length_us);
      const double start = std::clamp(*state.range_anchor_us, 0.0, frame.trace.length_us);
      state.range = TimeWindow{std::min(start, end), std::max(start, end)};
    } else if (state.dragged) {
      pan_window(frame, -static_cast<double>(io.MouseDelta.x) / frame.scale.pixels_per_us());
      if (io.MouseDelta.y != 0) ImGui::SetScrollY(ImGui::GetScrollY() - io.MouseDelta.y);
    }
  }
  frame.scale.window = state.window;
}

void pick(const TraceFrame& frame, bool released, const TraceHover& hover) {
  TraceViewState& state = frame.state;
  if (frame.mouse_inside && !state.dragged) {
    if (hover.counter)
      counter_tooltip(frame, *hover.counter, frame.time_at(ImGui::GetIO().MousePos.x));
    if (hover.span) span_tooltip(frame, hover);
  }
  if (frame.mouse_inside && ImGui::IsMouseDoubleClicked(ImGuiMouseButton_Left) && hover.span) {
    select(state, frame, *hover.span);
    zoom_to(frame, window_of(frame, *hover.span));
    state.dragged = true;  // the release that follows is no click of its own
  }
  if (released && !state.dragged) {
    if (hover.span) select(state, frame, *hover.span);
    if (state.pressed_right) {
      ImGui::OpenPopup("##trace_menu");
    } else if (!hover.span) {
      state.selected.reset();
      state.selected_name.reset();
    }
  }
  if (released) {
    state.range_anchor_us.reset();
    state.dragged = false;
  }
  draw_menu(frame);
}

void toggle_strip(const TraceFrame& frame, float y) {
  using Kind = TraceViewCache::Strip::Kind;
  TraceViewState& state = frame.state;
  const TraceViewCache::Strip* strip = strip_at(state, y);
  if (!strip) return;
  if (strip->kind == Kind::RankHead) state.rank_closed[strip->index] ^= 1;
  if (strip->kind == Kind::Lane) state.lane_closed[strip->index] ^= 1;
  if (strip->kind == Kind::CounterHead) state.counters_closed = !state.counters_closed;
  state.cache.strips_stale = true;
}

}  // namespace moonshard::viewer
