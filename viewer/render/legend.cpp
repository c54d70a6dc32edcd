#include "viewer/render/plot_parts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <implot.h>

#include "viewer/render/plot_text.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr std::array<ImPlotMarker, 5> kMarkers = {ImPlotMarker_Circle, ImPlotMarker_Square,
                                                  ImPlotMarker_Diamond, ImPlotMarker_Up,
                                                  ImPlotMarker_Down};
constexpr size_t kMaxRows = 4;
constexpr float kMaxNameEm = 32.0f;  // names of six words whole; longer ones lose what others share

struct Entry {
  size_t index;  // in the legend, or the number of entries for the "+ n more" one
  std::string text;
  float width;  // with its sign and the gap after it
};

using Row = std::vector<Entry>;

float sign_width(records::PlotKind kind) {
  return ImGui::GetFontSize() * (kind == records::PlotKind::Lines ? 1.9f : 0.95f);
}

float row_height() {
  return ImGui::GetTextLineHeight() * 1.3f;
}

float row_width(const Row& row) {
  float width = -1.4f * ImGui::GetFontSize();  // the last entry has no gap
  for (const Entry& entry : row) width += entry.width;
  return width;
}

std::vector<Row> layout_rows(const Legend& legend, float width, float figure_height) {
  const auto room = static_cast<size_t>(std::max(figure_height / 3 / row_height(), 1.0f));
  const size_t max_rows = std::min(room, kMaxRows);
  const float em = ImGui::GetFontSize();
  std::vector<Row> rows(1);
  std::vector<std::string> names;
  for (const LegendEntry& entry : legend.entries) names.push_back(entry.name);
  names = fit_names(names, std::min(kMaxNameEm * em, width * 0.9f));
  for (size_t i = 0; i < legend.entries.size(); ++i) {
    Entry entry{i, names[i], 0};
    entry.width = sign_width(legend.kind) + 0.4f * em + text_size(entry.text).x + 1.4f * em;
    if (!rows.back().empty() && row_width(rows.back()) + entry.width > width) {
      if (rows.size() == max_rows) {
        rows.back().back().text = fmt::format("+ {} more", legend.entries.size() - i + 1);
        rows.back().back().index = legend.entries.size();
        return rows;
      }
      rows.emplace_back();
    }
    rows.back().push_back(std::move(entry));
  }
  return rows;
}

// Sign of one series: a box, a line with a marker, or a marker.
void draw_sign(ImDrawList* draw, ImVec2 center, const Legend& legend, size_t index, ImU32 color) {
  const float em = ImGui::GetFontSize();
  if (is_bars(legend.kind) || legend.kind == records::PlotKind::StackedArea) {
    const ImVec2 half(0.42f * em, 0.36f * em);
    draw->AddRectFilled(center - half, center + half, color);
    return;
  }
  if (legend.kind == records::PlotKind::Lines) {
    draw->AddLine(center - ImVec2(0.9f * em, 0), center + ImVec2(0.9f * em, 0), color, 0.13f * em);
  }
  if (legend.markers) draw_marker(draw, center, index, 0.33f * em, color);
}

// Under the mouse: the names that there was no room for, with all others.
void list_all(const Legend& legend, const UiStyle& style, const HiddenNames& hidden) {
  constexpr size_t kMaxListed = 40;
  if (!ImGui::IsWindowHovered() || !ImGui::BeginTooltip()) return;
  for (size_t i = 0; i < legend.entries.size() && i < kMaxListed; ++i) {
    const LegendEntry& entry = legend.entries[i];
    const float em = ImGui::GetFontSize();
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const bool off = hidden.contains(entry.name);
    ImDrawList* draw = ImGui::GetWindowDrawList();
    draw_sign(draw, ImVec2(at.x + 0.95f * em, at.y + 0.55f * em), legend, entry.color,
              with_alpha(series_color(entry.color, style.theme), off ? 0.3f : 1));
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + 2.3f * em);
    show_text(entry.name);
  }
  if (legend.entries.size() > kMaxListed) {
    show_text(fmt::format("and {} more", legend.entries.size() - kMaxListed));
  }
  ImGui::EndTooltip();
}

}  // namespace

int series_marker(size_t index) {
  return kMarkers[index % kMarkers.size()];
}

void draw_marker(ImDrawList* draw, ImVec2 center, size_t index, float radius, ImU32 color) {
  // Sizes by eye, so that all shapes carry the same weight.
  const float r = radius * 1.12f, s = radius * 0.82f, w = radius * 1.0f, h = radius * 0.62f;
  switch (series_marker(index)) {
    case ImPlotMarker_Square:
      draw->AddRectFilled(center - ImVec2(s, s), center + ImVec2(s, s), color);
      break;
    case ImPlotMarker_Diamond:
      draw->AddQuadFilled(center + ImVec2(0, -r), center + ImVec2(r, 0), center + ImVec2(0, r),
                          center + ImVec2(-r, 0), color);
      break;
    case ImPlotMarker_Up:
      draw->AddTriangleFilled(center + ImVec2(0, -r), center + ImVec2(w, h), center + ImVec2(-w, h),
                              color);
      break;
    case ImPlotMarker_Down:
      draw->AddTriangleFilled(center + ImVec2(0, r), center + ImVec2(-w, -h),
                              center + ImVec2(w, -h), color);
      break;
    default:
      draw->AddCircleFilled(center, radius * 0.92f, color);
  }
}

float legend_height(const Legend& legend, float width, float figure_height) {
  if (legend.entries.empty()) return 0;
  const size_t rows = layout_rows(legend, width, figure_height).size();
  return (static_cast<float>(rows) + 0.25f) * row_height();
}

void draw_legend(const Legend& legend, ImVec2 top_left, ImVec2 figure, const UiStyle& style,
                 bool interactive, HiddenNames& hidden) {
  if (legend.entries.empty()) return;
  ImDrawList* draw = ImGui::GetWindowDrawList();
  const float em = ImGui::GetFontSize();
  const PlotColors& colors = style.colors();
  float y = top_left.y;
  for (const Row& row : layout_rows(legend, figure.x, figure.y)) {
    float x = std::round(top_left.x + (figure.x - row_width(row)) / 2);
    for (const Entry& entry : row) {
      const bool is_series = entry.index < legend.entries.size();
      const bool off = is_series && hidden.contains(legend.entries[entry.index].name);
      if (is_series) {
        const size_t index = legend.entries[entry.index].color;
        const ImVec2 center(x + sign_width(legend.kind) / 2, y + row_height() / 2);
        draw_sign(draw, center, legend, index,
                  with_alpha(series_color(index, style.theme), off ? 0.3f : 1));
      }
      const ImVec2 text_at(x + sign_width(legend.kind) + 0.4f * em,
                           std::round(y + (row_height() - ImGui::GetTextLineHeight()) / 2));
      draw->AddText(text_at, off ? colors.muted_text : colors.text, entry.text.data(),
                    entry.text.data() + entry.text.size());
      if (interactive && is_series) {
        ImGui::SetCursorScreenPos(ImVec2(x, y));
        ImGui::PushID(static_cast<int>(entry.index));
        if (ImGui::InvisibleButton("##legend", ImVec2(entry.width - 1.4f * em, row_height()))) {
          const std::string& name = legend.entries[entry.index].name;
          if (!hidden.erase(name)) hidden.insert(name);
        }
        ImGui::PopID();
      } else if (interactive) {
        const ImVec2 end(x + entry.width, y + row_height());
        if (ImGui::IsMouseHoveringRect(ImVec2(x, y), end)) list_all(legend, style, hidden);
      }
      x += entry.width;
    }
    y += row_height();
  }
}

}  // namespace moonshard::viewer
