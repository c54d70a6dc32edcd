#include "viewer/render/plot_parts.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <implot.h>

#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

struct Hit {
  size_t series = 0, source = 0;
  double x = 0;
  std::string value;
};

// Over bars: the bar whose column the mouse is in; in a stack the part the mouse is at.
std::optional<Hit> find_bar(const PreparedPanel& panel, const HiddenNames& hidden) {
  const ImPlotPoint mouse = ImPlot::GetPlotMousePos();
  const double along = panel.horizontal ? mouse.y : mouse.x;
  const double value = panel.horizontal ? mouse.x : mouse.y;
  const double half = panel.bar_width / 2;
  const bool stacked = panel.kind == records::PlotKind::StackedBars;
  const auto feet = stacked ? stack_feet(panel, hidden) : std::vector<std::vector<double>>();
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const PreparedSeries& series = panel.series[s];
    const bool is_hidden = hidden.contains(series.name);
    for (size_t i = 0; i < series.x.size() && !is_hidden; ++i) {
      if (std::abs(series.x[i] - along) > half) continue;
      const double foot = stacked ? feet[s][i] : 0, end = foot + series.y[i];
      if (stacked && (value < std::min(foot, end) || value > std::max(foot, end))) continue;
      return Hit{s, series.source[i], std::round(series.x[i]), format_number(series.y[i])};
    }
    if (is_hidden && !stacked) continue;  // a stack that failed belongs to no part of it
    for (const MissingPoint& point : series.missing) {
      if (std::abs(point.x - along) > half) continue;
      return Hit{s, point.source, std::round(point.x), point.text};
    }
  }
  return std::nullopt;
}

// Over an area: the part under the mouse, at the sample before it.
std::optional<Hit> find_part(const PreparedPanel& panel, const HiddenNames& hidden) {
  const ImPlotPoint mouse = ImPlot::GetPlotMousePos();
  const auto feet = stack_feet(panel, hidden);
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const PreparedSeries& series = panel.series[s];
    if (hidden.contains(series.name) || series.x.empty()) continue;
    const auto after = std::ranges::upper_bound(series.x, mouse.x);
    const auto at = static_cast<size_t>(std::max<long>(after - series.x.begin() - 1, 0));
    const double foot = feet[s][at], top = foot + series.y[at];
    if (mouse.y < foot || mouse.y > top) continue;
    return Hit{s, series.source[at], series.x[at], format_number(series.y[at])};
  }
  return std::nullopt;
}

std::optional<Hit> find_cell(const PreparedPanel& panel) {
  const ImPlotPoint mouse = ImPlot::GetPlotMousePos();
  const double row = std::round(mouse.y), column = std::round(mouse.x);
  if (row < 0 || row >= static_cast<double>(panel.series.size())) return std::nullopt;
  const auto s = static_cast<size_t>(row);
  const PreparedSeries& series = panel.series[s];
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (std::floor(series.x[i]) == column) {
      return Hit{s, series.source[i], column, format_number(series.y[i])};
    }
  }
  for (const MissingPoint& point : series.missing) {
    if (std::floor(point.x) == column) return Hit{s, point.source, column, point.text};
  }
  return std::nullopt;
}

// Over lines and points: the nearest point within reach.
std::optional<Hit> find_point(const PreparedPanel& panel, const HiddenNames& hidden) {
  const ImVec2 mouse = ImGui::GetMousePos();
  const float foot = ImPlot::GetPlotPos().y + ImPlot::GetPlotSize().y;
  const float reach = ImGui::GetFontSize();
  float nearest = reach * reach;
  std::optional<Hit> hit;
  const auto offer = [&](ImVec2 at, size_t s, size_t source, double x, double y,
                         const std::string* text) {
    const float distance =
        (at.x - mouse.x) * (at.x - mouse.x) + (at.y - mouse.y) * (at.y - mouse.y);
    if (distance >= nearest) return;
    nearest = distance;
    hit = Hit{s, source, x, text ? *text : format_number(y)};
  };
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const PreparedSeries& series = panel.series[s];
    if (hidden.contains(series.name)) continue;
    for (size_t i = 0; i < series.x.size(); ++i) {
      const ImVec2 at = to_pixels(panel, series.x[i], series.y[i]);
      offer(at, s, series.source[i], series.x[i], series.y[i], nullptr);
    }
    for (const MissingPoint& point : series.missing) {
      if (point.no_place) continue;  // its text says all
      const ImVec2 at = to_pixels(panel, point.x, panel.y_range.min);
      offer(panel.horizontal ? at + ImVec2(0.75f * reach, 0) : ImVec2(at.x, foot - 0.75f * reach),
            s, point.source, point.x, 0, &point.text);
    }
  }
  return hit;
}

std::optional<Hit> find_hit(const PreparedPanel& panel, const HiddenNames& hidden) {
  if (is_bars(panel.kind)) return find_bar(panel, hidden);
  if (panel.kind == records::PlotKind::StackedArea) return find_part(panel, hidden);
  if (panel.kind == records::PlotKind::HeatMap) return find_cell(panel);
  return find_point(panel, hidden);
}

std::string x_text(const PreparedPanel& panel, double x) {
  if (panel.categories.empty()) return format_tick(x);
  const auto index = static_cast<size_t>(std::max(0.0, std::round(x)));
  return index < panel.categories.size() ? panel.categories[index] : "";
}

// Outlined, it is a line of the text's colour on a wider one of the background's: seen on any cell.
void draw_frame(double x0, double y0, double x1, double y1, bool outlined, const UiStyle& style) {
  const PixelBox box(ImPlot::PlotToPixels(x0, y0), ImPlot::PlotToPixels(x1, y1));
  const float em = ImGui::GetFontSize();
  const PlotColors& colors = style.colors();
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  if (outlined) draw->AddRect(box.min, box.max, colors.background, 0, 0, 0.34f * em);
  draw->AddRect(box.min, box.max, colors.text, 0, 0, 0.14f * em);
}

void frame_bar(const PreparedPanel& panel, double place, double low, double high,
               const UiStyle& style) {
  const double half = panel.bar_width / 2;
  panel.horizontal ? draw_frame(low, place - half, high, place + half, false, style)
                   : draw_frame(place - half, low, place + half, high, false, style);
}

void mark_point(const PreparedPanel& panel, const PanelHit& hit, const HiddenNames& hidden,
                const UiStyle& style) {
  if (hit.series >= panel.series.size()) return;
  const PreparedSeries& series = panel.series[hit.series];
  if (hidden.contains(series.name)) return;
  const auto found = std::ranges::find(series.source, hit.source);
  if (found == series.source.end()) return;  // no figure: its mark at the axis says enough
  const auto i = static_cast<size_t>(found - series.source.begin());
  if (panel.kind == records::PlotKind::HeatMap) {
    const double column = std::floor(series.x[i]), row = static_cast<double>(hit.series);
    draw_frame(column - 0.5, row - 0.5, column + 0.5, row + 0.5, true, style);
  } else if (panel.kind == records::PlotKind::Bars) {
    frame_bar(panel, series.x[i], panel.y_log ? panel.y_range.min : 0, series.y[i], style);
  } else {
    const float em = ImGui::GetFontSize();
    ImPlot::GetPlotDrawList()->AddCircle(to_pixels(panel, series.x[i], series.y[i]), 0.6f * em,
                                         style.colors().text, 0, 0.14f * em);
  }
}

}  // namespace

std::optional<PanelHit> draw_hover_text(const PreparedPanel& panel, const HiddenNames& hidden,
                                        const UiStyle& style) {
  if (!ImPlot::IsPlotHovered()) return std::nullopt;
  const std::optional<Hit> hit = find_hit(panel, hidden);
  if (!hit) return std::nullopt;
  const PanelHit found{hit->series, hit->source};
  if (!ImGui::BeginTooltip()) return found;
  const PreparedSeries& series = panel.series[hit->series];
  const bool cells = panel.kind == records::PlotKind::HeatMap;
  const ImU32 color = cells ? style.colors().text : series_color(series.color, style.theme);
  const std::string name = series.name.empty() ? "(no name)" : series.name;
  const std::string& value_label = cells ? panel.value_label : panel.y_label;
  show_text(cells && !panel.y_label.empty() ? fmt::format("{}: {}", panel.y_label, name) : name,
            color);
  show_text(
      fmt::format("{}: {}", panel.x_label.empty() ? "x" : panel.x_label, x_text(panel, hit->x)));
  show_text(fmt::format("{}: {}", value_label.empty() ? "value" : value_label, hit->value));
  for (const records::PlotBand& band : panel.bands) {
    if (hit->x >= band.from && hit->x < band.to && !band.label.empty()) show_text(band.label);
  }
  if (hit->source < series.labels.size()) show_text(series.labels[hit->source]);
  ImGui::EndTooltip();
  return found;
}

void draw_marked(const PreparedPanel& panel, const std::vector<PanelHit>& hits,
                 const HiddenNames& hidden, const UiStyle& style) {
  if (panel.kind == records::PlotKind::StackedArea) return;
  ImPlot::PushPlotClipRect();
  if (panel.kind == records::PlotKind::StackedBars) {
    for (const MarkedStack& stack : marked_stacks(panel, hits, hidden)) {
      frame_bar(panel, stack.place, stack.low, stack.high, style);
    }
  } else {
    for (const PanelHit& hit : hits) mark_point(panel, hit, hidden, style);
  }
  ImPlot::PopPlotClipRect();
}

}  // namespace moonshard::viewer
