// Above the lanes: the whole trace in a strip with the shown window on it, and the time ruler.
#include <algorithm>
#include <cmath>

#include <imgui.h>

#include "viewer/panels/trace_parts.h"
#include "viewer/panels/trace_text.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxOverviewRows = 8;     // further ranks share a line
constexpr uint32_t kMaxLanesPerRank = 16;  // asked for the overview
constexpr float kColumnPixels = 2.0f;
constexpr double kLevels = 15;

std::vector<RulerTick> shown_ticks(const TraceFrame& frame) {
  const auto most = static_cast<size_t>(frame.scale.width / static_cast<double>(8 * frame.em));
  return ruler_ticks(frame.scale.window, std::max<size_t>(most, 2));
}

// The most busy lane of each rank decides: it is the one that the others wait for.
void fill_overview(const TraceFrame& frame, size_t columns) {
  TraceViewCache& cache = frame.state.cache;
  if (columns == cache.overview_columns) return;
  cache.overview_columns = columns;
  cache.overview_rows = std::min(kMaxOverviewRows, frame.index.ranks.size());
  cache.overview.assign(columns * cache.overview_rows, {});
  const double step = frame.trace.length_us / static_cast<double>(std::max<size_t>(columns, 1));
  if (!(step > 0)) return;  // nothing but instants at one moment
  const size_t num_ranks = std::min<size_t>(frame.index.ranks.size(), 64);
  for (size_t r = 0; r < num_ranks; ++r) {
    const TraceRank& rank = frame.index.ranks[r];
    const size_t line = r * cache.overview_rows / num_ranks;
    for (size_t column = 0; column < columns; ++column) {
      const double start = step * static_cast<double>(column);
      const TimeWindow window{start, start + step};
      double busy = 0;
      for (uint32_t lane = 0; lane < std::min(rank.num_lanes, kMaxLanesPerRank); ++lane) {
        busy = std::max(busy, frame.index.busy[rank.first_lane + lane].covered_us(window));
      }
      const auto level = [&](double us) {
        return static_cast<uint8_t>(std::clamp(std::ceil(kLevels * us / step), 0.0, kLevels));
      };
      TraceViewCache::OverviewCell& cell = cache.overview[line * columns + column];
      cell.busy = std::max(cell.busy, level(busy));
      cell.exposed = std::max(cell.exposed, level(rank.exposed.covered_us(window)));
    }
  }
}

void draw_cells(const TraceFrame& frame, ImVec2 at, float height) {
  const TraceViewCache& cache = frame.state.cache;
  if (cache.overview_rows == 0) return;
  const Theme theme = frame.style.theme;
  const ImU32 busy = series_color(0, theme);
  const ImU32 exposed = series_color(*named_series_color("exposed communication"), theme);
  const float line = height / static_cast<float>(cache.overview_rows);
  ImDrawList* draw = ImGui::GetWindowDrawList();
  for (size_t row = 0; row < cache.overview_rows; ++row) {
    const auto* cells = &cache.overview[row * cache.overview_columns];
    const float top = at.y + line * static_cast<float>(row), bottom = top + line - 1;
    for (size_t from = 0; from < cache.overview_columns;) {
      size_t to = from + 1;
      while (to < cache.overview_columns && cells[to].busy == cells[from].busy &&
             cells[to].exposed == cells[from].exposed) {
        ++to;
      }
      const float x0 = at.x + kColumnPixels * static_cast<float>(from);
      const float x1 = at.x + kColumnPixels * static_cast<float>(to);
      const auto alpha = [](uint8_t level) {
        return 0.15f + 0.6f * static_cast<float>(level) / 15;
      };
      if (cells[from].busy > 0) {
        draw->AddRectFilled(ImVec2(x0, top), ImVec2(x1, bottom),
                            with_alpha(busy, alpha(cells[from].busy)));
      }
      if (cells[from].exposed > 0) {
        const float share = static_cast<float>(cells[from].exposed) / 15;
        draw->AddRectFilled(ImVec2(x0, bottom - line * 0.7f * share), ImVec2(x1, bottom), exposed);
      }
      from = to;
    }
  }
}

}  // namespace

void draw_overview(const TraceFrame& frame, float height) {
  ImGui::SetCursorScreenPos(ImVec2(frame.chart_x, ImGui::GetCursorScreenPos().y));
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 size(static_cast<float>(frame.scale.width), height);
  ImGui::InvisibleButton("##overview", size);
  const TimeScale whole{{0, std::max(frame.trace.length_us, 1e-3)}, frame.scale.width};
  TimeWindow& window = frame.state.window;
  const double mouse_us = whole.time_at(static_cast<double>(ImGui::GetIO().MousePos.x - at.x));
  if (ImGui::IsItemActive()) {
    const double half = window.length_us() / 2;
    window = {mouse_us - half, mouse_us + half};
    clamp_window(frame.trace, window);
  }
  if (ImGui::IsItemHovered()) {
    ImGui::SetItemKeyOwner(ImGuiKey_MouseWheelY);
    if (const float wheel = ImGui::GetIO().MouseWheel; wheel != 0) {
      zoom_window(frame.trace, window, (window.start_us + window.end_us) / 2,
                  std::pow(1.25, static_cast<double>(-wheel)));
    }
  }
  fill_overview(frame, static_cast<size_t>(size.x / kColumnPixels));
  const PlotColors& colors = frame.style.colors();
  ImDrawList* draw = ImGui::GetWindowDrawList();
  draw->AddRectFilled(at, at + size, ImGui::GetColorU32(ImGuiCol_FrameBg));
  draw_cells(frame, at, height);
  const auto x_of = [&](double time) {
    return at.x + static_cast<float>(std::clamp(whole.x_of(time), 0.0, whole.width));
  };
  if (frame.state.range) {
    draw->AddRectFilled(ImVec2(x_of(frame.state.range->start_us), at.y),
                        ImVec2(x_of(frame.state.range->end_us) + 1, at.y + height),
                        with_alpha(series_color(3, frame.style.theme), 0.35f));
  }
  // What is outside of the window is shaded.
  const float x0 = x_of(window.start_us), x1 = std::max(x_of(window.end_us), x0 + 2);
  const ImU32 shade = with_alpha(colors.background, 0.62f);
  draw->AddRectFilled(at, ImVec2(x0, at.y + height), shade);
  draw->AddRectFilled(ImVec2(x1, at.y), at + size, shade);
  draw->AddRect(ImVec2(x0, at.y), ImVec2(x1, at.y + height), colors.text);
}

void draw_ruler(const TraceFrame& frame, float height) {
  const ImVec2 at(frame.chart_x, ImGui::GetCursorScreenPos().y);
  const float right = at.x + static_cast<float>(frame.scale.width);
  const PlotColors& colors = frame.style.colors();
  ImDrawList* draw = ImGui::GetWindowDrawList();
  draw->PushClipRect(at, ImVec2(right, at.y + height), true);
  for (const RulerTick& tick : shown_ticks(frame)) {
    const float x = frame.x_of(tick.time_us);
    draw->AddLine(ImVec2(x, at.y + height - 0.5f * frame.em), ImVec2(x, at.y + height),
                  colors.border);
    draw->AddText(ImVec2(x + 0.3f * frame.em, at.y + 0.1f * frame.em), colors.muted_text,
                  tick.text.c_str());
  }
  draw->AddLine(ImVec2(at.x, at.y + height - 0.5f), ImVec2(right, at.y + height - 0.5f),
                colors.border);
  const float mouse_x = ImGui::GetIO().MousePos.x;
  if (frame.mouse_inside) {
    const std::string text = format_time(frame.time_at(mouse_x));
    const float width = ImGui::CalcTextSize(text.c_str()).x + 0.6f * frame.em;
    const float x = std::clamp(mouse_x - width / 2, at.x, std::max(at.x, right - width));
    draw->AddRectFilled(ImVec2(x, at.y), ImVec2(x + width, at.y + 1.3f * frame.em), colors.text, 3);
    draw->AddText(ImVec2(x + 0.3f * frame.em, at.y + 0.05f * frame.em), colors.background,
                  text.c_str());
  }
  draw->PopClipRect();
}

void draw_grid(const TraceFrame& frame, float top, float bottom) {
  const ImU32 color = frame.style.colors().grid;
  for (const RulerTick& tick : shown_ticks(frame)) {
    const float x = std::round(frame.x_of(tick.time_us)) + 0.5f;
    ImGui::GetWindowDrawList()->AddLine(ImVec2(x, top), ImVec2(x, bottom), color);
  }
}

void draw_range(const TraceFrame& frame, float top, float bottom) {
  ImDrawList* draw = ImGui::GetWindowDrawList();
  if (frame.mouse_inside) {
    const float x = std::round(ImGui::GetIO().MousePos.x) + 0.5f;
    draw->AddLine(ImVec2(x, top), ImVec2(x, bottom), with_alpha(frame.style.colors().text, 0.35f));
  }
  if (!frame.state.range) return;
  const ImU32 color = series_color(3, frame.style.theme);
  const float limit = frame.right();
  const auto x_of = [&](double time) {
    return std::clamp(frame.x_of(time), frame.chart_x - 10, limit + 10);
  };
  const float x0 = x_of(frame.state.range->start_us), x1 = x_of(frame.state.range->end_us);
  draw->AddRectFilled(ImVec2(x0, top), ImVec2(x1, bottom), with_alpha(color, 0.13f));
  draw->AddLine(ImVec2(x0, top), ImVec2(x0, bottom), color);
  draw->AddLine(ImVec2(x1, top), ImVec2(x1, bottom), color);
  const std::string text = format_time(frame.state.range->length_us());
  const float width = ImGui::CalcTextSize(text.c_str()).x + 0.8f * frame.em;
  const float x =
      std::clamp((x0 + x1 - width) / 2, frame.chart_x, std::max(frame.chart_x, limit - width));
  const float y = bottom - 1.7f * frame.em;
  draw->AddRectFilled(ImVec2(x, y), ImVec2(x + width, y + 1.4f * frame.em), color, 3);
  draw->AddText(ImVec2(x + 0.4f * frame.em, y + 0.12f * frame.em), readable_text_on(color),
                text.c_str());
}

}  // namespace moonshard::viewer
