#include "viewer/panels/trace_view.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_internal.h>

#include "viewer/panels/trace_parts.h"
#include "viewer/panels/trace_text.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kGroupsPerFrame = 20000;  // of range sums: about 3 ms
constexpr double kMaxBoxes = 60000;        // in a frame: about 5 ms
constexpr float kNarrowestWithPane = 52;   // ems; below, lanes take all of the width

void prepare(TraceFrame& frame) {
  TraceViewState& state = frame.state;
  TraceViewCache& cache = state.cache;
  state.lane_closed.resize(frame.trace.lanes.size(), 0);
  state.rank_closed.resize(frame.index.ranks.size(), 0);
  cache.colors.resize(frame.trace.names.size(), 0);
  if (cache.theme != frame.style.theme) std::ranges::fill(cache.colors, 0u);
  cache.theme = frame.style.theme;
  if (cache.font_size != frame.em) {
    cache.font_size = frame.em;
    cache.labels.clear();
    cache.strips_stale = true;
  }
  if (cache.searched != state.search) {
    cache.searched = state.search;
    cache.search = TraceSearch(frame.trace, frame.index, cache.searched);
  }
  clamp_window(frame.trace, state.window);
  if (cache.strips_stale) make_strips(frame);
}

// Sums advance a little each frame until they are done.
void advance_sums(const TraceFrame& frame) {
  TraceViewCache& cache = frame.state.cache;
  if (!cache.whole_started) {
    cache.whole_started = true;
    cache.whole = RangeSums(frame.index, {0, frame.trace.length_us});
    cache.whole_order.stale = true;
  }
  if (const std::optional<TimeWindow>& range = frame.state.range) {
    if (cache.range_sums.range() != *range || cache.range_sums.ranks().empty()) {
      cache.range_sums = RangeSums(frame.index, *range);
      cache.range_order.stale = true;
    }
    cache.range_sums.step(frame.trace, frame.index, kGroupsPerFrame);
  }
  cache.whole.step(frame.trace, frame.index, kGroupsPerFrame);
}

std::string hits_text(const TraceFrame& frame) {
  const TraceViewState& state = frame.state;
  const TraceSearch& search = state.cache.search;
  if (!search.active()) return "";
  if (search.num_hits() == 0) return "no hit";
  const char* plural = search.num_hits() == 1 ? "" : "s";
  if (state.selected && state.selected_name && search.matches_name(*state.selected_name)) {
    const uint64_t place = search.place_of(frame.trace, frame.index, *state.selected) + 1;
    return fmt::format("{} of {} hit{}", place, search.num_hits(), plural);
  }
  return fmt::format("{} hit{}", search.num_hits(), plural);
}

void draw_toolbar(const TraceFrame& frame) {
  TraceViewState& state = frame.state;
  const ImU32 muted = frame.style.colors().muted_text;
  if (std::exchange(state.focus_search, false)) ImGui::SetKeyboardFocusHere();
  ImGui::SetNextItemWidth(
      std::clamp(ImGui::GetContentRegionAvail().x * 0.3f, 7 * frame.em, 18 * frame.em));
  if (ImGui::InputTextWithHint(
          "##search", "find a name (F)", state.search, sizeof state.search,
          ImGuiInputTextFlags_EnterReturnsTrue | ImGuiInputTextFlags_EscapeClearsAll)) {
    go_to_hit(frame, !ImGui::GetIO().KeyShift);
    state.focus_search = true;  // Enter again: the next one
  }
  ImGui::SameLine();
  ImGui::BeginDisabled(state.cache.search.num_hits() == 0);
  if (ImGui::ArrowButton("##previous", ImGuiDir_Left)) go_to_hit(frame, false);
  ImGui::SetItemTooltip("previous hit (P or Shift+F3)");
  ImGui::SameLine(0, 2);
  if (ImGui::ArrowButton("##next", ImGuiDir_Right)) go_to_hit(frame, true);
  ImGui::SetItemTooltip("next hit (N or F3)");
  ImGui::EndDisabled();
  const std::string hits = hits_text(frame);
  if (!hits.empty()) {
    ImGui::SameLine();
    ImGui::AlignTextToFramePadding();
    show_text(hits, hits == "no hit" ? status_color("failed", frame.style.theme) : muted);
  }
  // Right-aligned: what is shown, and how to come back.
  const double visible_us =
      std::min(state.window.end_us, frame.trace.length_us) - std::max(state.window.start_us, 0.0);
  const std::string shown =
      fmt::format("{} of {}   {} events", format_time(std::max(visible_us, 0.0)),
                  format_time(frame.trace.length_us), frame.trace.num_events);
  const float buttons = ImGui::CalcTextSize("Show all").x + ImGui::CalcTextSize("Statistics").x +
                        ImGui::CalcTextSize("Critical path").x +
                        6 * ImGui::GetStyle().FramePadding.x + 2 * ImGui::GetStyle().ItemSpacing.x;
  const float text = ImGui::CalcTextSize(shown.c_str()).x + ImGui::GetStyle().ItemSpacing.x;
  ImGui::SameLine();
  const float room = ImGui::GetContentRegionAvail().x;
  if (room > buttons + text) {
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + room - buttons - text);
    ImGui::AlignTextToFramePadding();
    show_text(shown, muted);
    ImGui::SameLine();
  } else {
    if (room < buttons) ImGui::NewLine();
    const float rest = ImGui::GetContentRegionAvail().x;
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + std::max(0.0f, rest - buttons));
  }
  if (ImGui::Button("Show all")) state.window = {};
  ImGui::SetItemTooltip("the whole trace (0 or Home)");
  ImGui::SameLine();
  const bool path = state.show_path;
  if (!path) ImGui::PushStyleColor(ImGuiCol_Button, ImGui::GetColorU32(ImGuiCol_FrameBg));
  if (ImGui::Button("Critical path")) state.show_path = !state.show_path;
  if (!path) ImGui::PopStyleColor();
  ImGui::SetItemTooltip(
      "Below the lanes: the chain of work of which every part had to wait for the one before.");
  ImGui::SameLine();
  const float whole = ImGui::GetWindowWidth() - 2 * ImGui::GetStyle().WindowPadding.x;
  const bool narrow = whole <= kNarrowestWithPane * frame.em;
  const bool pane = state.show_pane && !narrow;
  ImGui::BeginDisabled(narrow);
  if (!pane) ImGui::PushStyleColor(ImGuiCol_Button, ImGui::GetColorU32(ImGuiCol_FrameBg));
  if (ImGui::Button("Statistics")) state.show_pane = !state.show_pane;
  if (!pane) ImGui::PopStyleColor();
  ImGui::EndDisabled();
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip | ImGuiHoveredFlags_AllowWhenDisabled)) {
    show_tooltip(narrow ? "The panel is too narrow for the statistics beside the lanes."
                        : "Times of names and lanes, beside the lanes.");
  }
}

void scroll_to(const TraceFrame& frame, float view_height) {
  TraceViewState& state = frame.state;
  if (!state.bring_into_view) return;
  const TraceIndex::Row row = frame.index.rows[state.bring_into_view->row];
  state.bring_into_view.reset();
  const uint32_t rank = frame.index.lane_rank[row.lane];
  if (state.rank_closed[rank] || (state.lane_closed[row.lane] && row.depth > 0)) {
    state.rank_closed[rank] = state.lane_closed[row.lane] = 0;
    make_strips(frame);
  }
  for (const TraceViewCache::Strip& strip : state.cache.strips) {
    if (strip.kind != TraceViewCache::Strip::Kind::Lane || strip.index != row.lane) continue;
    const float y = strip.y + static_cast<float>(row.depth) * frame.row_height();
    const float now = ImGui::GetScrollY();
    if (y < now || y + 2 * frame.row_height() > now + view_height) {
      ImGui::SetScrollY(std::max(0.0f, y - view_height / 3));
    }
    return;
  }
}

// The lane's whole name, which the gutter may have cut off.
void lane_tooltip(const TraceFrame& frame, float y) {
  const TraceViewCache::Strip* strip = strip_at(frame.state, y);
  if (!strip || strip->kind != TraceViewCache::Strip::Kind::Lane || !ImGui::BeginTooltip()) return;
  const uint32_t lane = strip->index;
  const double busy = frame.index.busy[lane].total_us();
  size_t num_spans = 0;
  for (const TraceRow& row : frame.trace.lanes[lane].rows) num_spans += row.size();
  show_bold(clean_text(frame.trace.lanes[lane].thread, 128), frame.style);
  show_text(fmt::format("{}\n{} events in {} rows\nbusy {} ({})",
                        clean_text(frame.trace.lanes[lane].process, 128), num_spans,
                        frame.trace.lanes[lane].rows.size(), format_time(busy),
                        format_share(busy, frame.trace.length_us)));
  ImGui::EndTooltip();
}

void draw_lanes(TraceFrame& frame, float height) {
  TraceViewState& state = frame.state;
  const ImVec2 outer(
      frame.gutter + static_cast<float>(frame.scale.width) + ImGui::GetStyle().ScrollbarSize,
      height);
  // On a huge window full of rows boxes get wider, so that a frame stays in its time.
  const double rows = static_cast<double>(height / frame.row_height());
  frame.min_box = std::clamp(frame.scale.width * rows / kMaxBoxes, 2.0, 5.0);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, ImVec2(0, 0));
  ImGui::BeginChild("##lanes", outer, ImGuiChildFlags_None,
                    ImGuiWindowFlags_NoScrollWithMouse | ImGuiWindowFlags_AlwaysVerticalScrollbar |
                        ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoNav);
  ImGui::PopStyleVar();
  scroll_to(frame, height);
  const ImVec2 origin = ImGui::GetCursorScreenPos();
  const ImVec2 corner = ImGui::GetWindowPos();
  const float content = std::max(state.cache.total_height, height);
  ImGui::InvisibleButton("##gutter", ImVec2(frame.gutter, content));
  if (ImGui::IsItemHovered()) {
    ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelY);
    const float wheel = ImGui::GetIO().MouseWheel;
    if (wheel != 0) ImGui::SetScrollY(ImGui::GetScrollY() - wheel * 3 * frame.row_height());
    lane_tooltip(frame, ImGui::GetIO().MousePos.y - origin.y);
  }
  if (ImGui::IsItemClicked()) toggle_strip(frame, ImGui::GetIO().MousePos.y - origin.y);
  ImGui::SetCursorScreenPos(ImVec2(origin.x + frame.gutter, origin.y));
  ImGui::InvisibleButton("##chart", ImVec2(static_cast<float>(frame.scale.width), content),
                         ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight);
  const bool released = ImGui::IsItemDeactivated();
  frame.mouse_inside = ImGui::IsItemHovered();
  navigate(frame);
  if (state.cache.strips_stale) make_strips(frame);

  const float bottom = corner.y + height;
  ImDrawList* draw = ImGui::GetWindowDrawList();
  state.scroll_y = ImGui::GetScrollY();
  state.chart_min = ImVec2(frame.chart_x, corner.y);
  state.chart_max = ImVec2(frame.right(), bottom);
  draw->PushClipRect(state.chart_min, state.chart_max, true);
  draw_grid(frame, corner.y, bottom);
  draw->PopClipRect();
  const TraceHover hover = draw_strips(frame, origin.y, corner.y, bottom);
  draw_path(frame, origin.y, corner.y, bottom);
  draw->PushClipRect(state.chart_min, state.chart_max, true);
  draw_range(frame, corner.y, bottom);
  draw->PopClipRect();
  draw->AddLine(ImVec2(frame.chart_x - 0.5f, corner.y), ImVec2(frame.chart_x - 0.5f, bottom),
                frame.style.colors().border);
  pick(frame, released, hover);
  ImGui::EndChild();
}

void draw_chart(TraceFrame& frame) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 room = ImGui::GetContentRegionAvail();
  frame.gutter = std::min(11.5f * frame.em, room.x * 0.3f);
  frame.chart_x = at.x + frame.gutter;
  frame.scale.window = frame.state.window;
  frame.scale.width =
      static_cast<double>(std::max(10.0f, room.x - frame.gutter - ImGui::GetStyle().ScrollbarSize));
  const size_t num_ranks = std::clamp<size_t>(frame.index.ranks.size(), 2, 6);
  const float overview = frame.em * (0.6f + 0.5f * static_cast<float>(num_ranks));
  const float ruler = 1.6f * frame.em, gap = 0.3f * frame.em;
  // Lanes first: they move the window, and ruler and overview shall show where it is now.
  ImGui::SetCursorScreenPos(ImVec2(at.x, at.y + overview + gap + ruler));
  draw_lanes(frame, std::max(frame.em, room.y - overview - gap - ruler));
  ImGui::SetCursorScreenPos(at);
  draw_overview(frame, overview);
  ImGui::SetCursorScreenPos(ImVec2(at.x, at.y + overview + gap));
  draw_ruler(frame, ruler);
  ImGui::Dummy(ImVec2(0, 0));
}

void draw_splitter(const TraceFrame& frame, float whole_width) {
  ImGui::SameLine(0, 0);
  ImGui::InvisibleButton("##splitter", ImVec2(0.5f * frame.em, ImGui::GetContentRegionAvail().y));
  if (ImGui::IsItemHovered() || ImGui::IsItemActive()) {
    ImGui::SetMouseCursor(ImGuiMouseCursor_ResizeEW);
  }
  if (ImGui::IsItemActive()) {
    frame.state.pane_share =
        std::clamp(frame.state.pane_share - ImGui::GetIO().MouseDelta.x / whole_width, 0.15f, 0.6f);
  }
  ImGui::SameLine(0, 0);
}

}  // namespace

void draw_trace(const Trace& trace, const TraceIndex& index, TraceViewState& state,
                const UiStyle& style) {
  TraceFrame frame{trace, index, state, style, ImGui::GetFontSize(), 0, {}, 2, 0, false};
  state.num_looked = state.num_boxes = 0;
  prepare(frame);
  handle_keys(frame);
  draw_toolbar(frame);
  const ImVec2 room = ImGui::GetContentRegionAvail();
  const bool pane = state.show_pane && room.x > kNarrowestWithPane * frame.em;
  if (pane) advance_sums(frame);
  const float pane_width = pane ? std::max(room.x * state.pane_share, 21 * frame.em) : 0;
  const float chart_width = pane ? room.x - pane_width - 0.5f * frame.em : room.x;
  constexpr ImGuiWindowFlags kStill = ImGuiWindowFlags_NoScrollbar |
                                      ImGuiWindowFlags_NoScrollWithMouse | ImGuiWindowFlags_NoMove |
                                      ImGuiWindowFlags_NoNav;
  ImGui::BeginChild("##trace_chart", ImVec2(chart_width, 0), ImGuiChildFlags_None, kStill);
  draw_chart(frame);
  ImGui::EndChild();
  if (!pane) return;
  draw_splitter(frame, room.x);
  ImGui::BeginChild("##trace_pane", ImVec2(0, 0));
  draw_pane(frame);
  ImGui::EndChild();
}

}  // namespace moonshard::viewer
