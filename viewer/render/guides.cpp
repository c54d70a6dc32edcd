#include "viewer/render/plot_parts.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <implot.h>

#include "viewer/render/plot_text.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxPointTexts = 200;

float pixel_x(const PreparedPanel& panel, double x) {
  return ImPlot::PlotToPixels(x, panel.y_range.max).x;
}

// Level where the name fits its band, upright where at least its height does, else not at all.
enum class BandText { None, Level, Turned };

BandText band_text(const std::string& label, float pixels) {
  if (label.empty()) return BandText::None;
  if (text_size(label).x + 0.5f * font_unit() <= pixels) return BandText::Level;
  return pixels >= 0.95f * font_unit() ? BandText::Turned : BandText::None;
}

void draw_dashed(ImDrawList* draw, ImVec2 from, ImVec2 to, ImU32 color, float weight) {
  const float length = std::hypot(to.x - from.x, to.y - from.y);
  if (!(length > 0) || length > 1e5f) return;
  const float dash = 0.42f * font_unit(), step = 0.72f * font_unit();
  const ImVec2 way((to.x - from.x) / length, (to.y - from.y) / length);
  for (float at = 0; at < length; at += step) {
    draw->AddLine(from + way * at, from + way * std::min(at + dash, length), color, weight);
  }
}

// The line's points in pixels: a curve as it is, a single value from edge to edge.
std::vector<ImVec2> reference_pixels(const records::PlotReference& line,
                                     const PreparedPanel& panel) {
  const ImVec2 min = ImPlot::GetPlotPos(), max = min + ImPlot::GetPlotSize();
  const auto pixels = [&](double along, double value) { return to_pixels(panel, along, value); };
  if (line.x.size() == line.y.size()) {
    std::vector<ImVec2> points;
    for (size_t i = 0; i < line.x.size(); ++i) points.push_back(pixels(line.x[i], line.y[i]));
    return points;
  }
  const bool level = line.x.empty();
  const ImVec2 at =
      level ? pixels(panel.x_range.max, line.y[0]) : pixels(line.x[0], panel.y_range.max);
  if (level != panel.horizontal) return {ImVec2(min.x, at.y), ImVec2(max.x, at.y)};
  return {ImVec2(at.x, max.y), ImVec2(at.x, min.y)};
}

ImU32 reference_color(const records::PlotReference& line, const PreparedPanel& panel,
                      const UiStyle& style) {
  for (const PreparedSeries& series : panel.series) {
    if (series.name == line.series) return series_color(series.color, style.theme);
  }
  return style.colors().muted_text;
}

// Words over the stubs of bars without a figure, turned as bars.cpp draws them at most.
void block_missing_bars(const PreparedPanel& panel, TextPlacer& placer) {
  const float em = font_unit(), foot = ImPlot::GetPlotPos().y + ImPlot::GetPlotSize().y;
  for (const PreparedSeries& series : panel.series) {
    for (const MissingPoint& point : series.missing) {
      const float x = pixel_x(panel, point.x), height = text_size(point.text).x + 2.2f * em;
      placer.block(ImVec2(x - 0.6f * em, foot - height), ImVec2(x + 0.6f * em, foot));
    }
  }
}

}  // namespace

void TextPlacer::place(ImDrawList* draw, const std::string& text,
                       const std::vector<ImVec2>& corners, ImU32 color) {
  const ImVec2 size = text_size(text);
  const ImVec2 plot_min = ImPlot::GetPlotPos(), plot_max = plot_min + ImPlot::GetPlotSize();
  for (const ImVec2 corner : corners) {
    const PixelBox box(corner, corner + size);
    const bool inside = box.min.x >= plot_min.x && box.min.y >= plot_min.y &&
                        box.max.x <= plot_max.x && box.max.y <= plot_max.y;
    const auto meets = [&](const PixelBox& other) {
      return box.min.x < other.max.x && other.min.x < box.max.x && box.min.y < other.max.y &&
             other.min.y < box.max.y;
    };
    if (!inside || std::ranges::any_of(taken_, meets)) continue;
    taken_.push_back(box);
    return draw_text(draw, corner, color, text);
  }
}

float band_ruler_height(const PreparedPanel& panel, ImVec2 area) {
  if (panel.bands.empty()) return 0;
  push_small_font();
  float height = 1.5f * font_unit();
  for (const records::PlotBand& band : panel.bands) {
    const double share = panel.x_log ? std::log(band.to / band.from) /
                                           std::log(panel.x_range.max / panel.x_range.min)
                                     : (band.to - band.from) / panel.x_range.size();
    if (band_text(band.label, static_cast<float>(share) * area.x) != BandText::Turned) continue;
    // An upright name may not take the room of the data: on a low plot it is left out.
    const float upright = text_size(band.label).x + 0.8f * font_unit();
    if (upright <= 0.3f * area.y) height = std::max(height, upright);
  }
  ImGui::PopFont();
  return height;
}

void draw_band_shades(const PreparedPanel& panel, const UiStyle& style) {
  if (panel.bands.empty()) return;
  ImPlot::PushPlotClipRect();
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const ImVec2 min = ImPlot::GetPlotPos(), max = min + ImPlot::GetPlotSize();
  const ImU32 color = with_alpha(style.colors().muted_text, 0.09f);
  for (size_t i = 0; i < panel.bands.size(); i += 2) {
    draw->AddRectFilled(ImVec2(pixel_x(panel, panel.bands[i].from), min.y),
                        ImVec2(pixel_x(panel, panel.bands[i].to), max.y), color);
  }
  ImPlot::PopPlotClipRect();
}

void draw_band_ruler(const PreparedPanel& panel, float height, const UiStyle& style) {
  if (panel.bands.empty()) return;
  ImPlot::PushPlotClipRect();
  push_small_font();
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const PlotColors& colors = style.colors();
  const float em = font_unit();
  const ImVec2 min = ImPlot::GetPlotPos(), max = min + ImPlot::GetPlotSize();
  const float weight = std::max(1.0f, 0.06f * em);
  for (size_t i = 0; i < panel.bands.size(); ++i) {
    const records::PlotBand& band = panel.bands[i];
    const float left = pixel_x(panel, band.from), right = pixel_x(panel, band.to);
    draw_dashed(draw, ImVec2(left, min.y), ImVec2(left, max.y),
                with_alpha(colors.muted_text, 0.55f), weight);
    const ImVec2 center((left + right) / 2, min.y + height / 2);
    const BandText way = band_text(band.label, right - left);
    if (way == BandText::Level) {
      draw_text_centered(draw, center, colors.text, band.label);
    } else if (way == BandText::Turned && text_size(band.label).x <= height) {
      draw_text_turned(draw, center, kUpright, 0.5f, colors.text, band.label);
    }
  }
  ImGui::PopFont();
  ImPlot::PopPlotClipRect();
}

void block_data(const PreparedPanel& panel, TextPlacer& placer, const HiddenNames& hidden) {
  const bool lines = panel.kind == records::PlotKind::Lines;
  if (is_bars(panel.kind) && !panel.horizontal) return block_missing_bars(panel, placer);
  if ((!lines && panel.kind != records::PlotKind::Scatter) || panel.references.empty()) return;
  const float em = font_unit(), step = 0.5f * em, half = 0.12f * em;
  const float foot = ImPlot::GetPlotPos().y + ImPlot::GetPlotSize().y;
  std::map<double, int> rows;
  for (const PreparedSeries& series : panel.series) {
    if (hidden.contains(series.name)) continue;
    for (const MissingPoint& point : series.missing) {
      const ImVec2 at(pixel_x(panel, point.x),
                      foot - 1.2f * em * static_cast<float>(rows[point.x]++));
      const float width = text_size(point.text).x + 0.8f * em;
      placer.block(at - ImVec2(width, 1.4f * em), at + ImVec2(width, 0));
    }
    for (size_t i = 1; lines && panel.markers && i < series.x.size(); ++i) {
      const ImVec2 from = ImPlot::PlotToPixels(series.x[i - 1], series.y[i - 1]);
      const ImVec2 way = ImPlot::PlotToPixels(series.x[i], series.y[i]) - from;
      const int parts = static_cast<int>(std::min(std::hypot(way.x, way.y) / step, 400.0f));
      for (int part = 0; part <= parts; ++part) {
        const ImVec2 at = from + way * (static_cast<float>(part) / static_cast<float>(parts + 1));
        placer.block(at - ImVec2(half, half), at + ImVec2(half, half));
      }
    }
  }
}

void draw_references(const PreparedPanel& panel, TextPlacer& placer, const HiddenNames& hidden,
                     const UiStyle& style) {
  if (panel.references.empty()) return;
  ImPlot::PushPlotClipRect();
  push_small_font();
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const float em = font_unit();
  for (const records::PlotReference& line : panel.references) {
    if (!line.series.empty() && hidden.contains(line.series)) continue;
    const ImU32 color = reference_color(line, panel, style);
    const std::vector<ImVec2> points = reference_pixels(line, panel);
    for (size_t i = 1; i < points.size(); ++i) {
      draw_dashed(draw, points[i - 1], points[i], color, 0.09f * em);
    }
    if (line.text.empty()) continue;
    // Behind the end of the line, then along it, above and below.
    const ImVec2 size = text_size(line.text);
    const ImVec2 end = points.back();
    std::vector<ImVec2> corners;
    if (line.x.size() > 1) {
      for (const float shift : {0.0f, -0.6f, 0.6f, -1.2f, 1.2f, -1.8f, 1.8f, -2.4f, 2.4f}) {
        corners.push_back(ImVec2(end.x + 0.6f * em, end.y - size.y / 2 + shift * em));
      }
    }
    for (const float share : {1.0f, 0.75f, 0.5f, 0.25f, 0.0f}) {
      const float place = share * static_cast<float>(points.size() - 1);
      const size_t before = std::min(static_cast<size_t>(place), points.size() - 2);
      const float part = place - static_cast<float>(before);
      const ImVec2 at = points[before] + (points[before + 1] - points[before]) * part;
      const bool steep = std::abs(points.back().x - points.front().x) < 1;
      // Beside an upright line: right of it, or left where the plot ends.
      const float left = at.x - size.x - 0.4f * em;
      for (const float x : steep ? std::vector{at.x + 0.3f * em, left} : std::vector{left}) {
        for (const float shift : {-1.25f, 0.3f, -2.4f, 1.4f}) {
          corners.push_back(ImVec2(x, at.y + shift * em));
        }
      }
    }
    placer.place(draw, line.text, corners, mix(color, style.colors().text, 0.35f));
  }
  ImGui::PopFont();
  ImPlot::PopPlotClipRect();
}

void draw_point_texts(const PreparedPanel& panel, TextPlacer& placer, const HiddenNames& hidden,
                      const UiStyle& style) {
  if (is_bars(panel.kind)) return;  // theirs stand behind the values
  size_t count = 0;
  const float em = font_unit(), radius = 0.42f * em;
  for (const PreparedSeries& series : panel.series) {
    if (hidden.contains(series.name) || series.texts.empty()) continue;
    count += series.x.size();
    for (size_t i = 0; i < series.x.size() && count <= kMaxPointTexts; ++i) {
      const ImVec2 at = ImPlot::PlotToPixels(series.x[i], series.y[i]);
      placer.block(at - ImVec2(radius, radius), at + ImVec2(radius, radius));
    }
  }
  if (count == 0 || count > kMaxPointTexts) return;
  ImPlot::PushPlotClipRect();
  push_small_font();
  const ImU32 color = style.colors().muted_text;
  for (const PreparedSeries& series : panel.series) {
    if (hidden.contains(series.name) || series.texts.empty()) continue;
    for (size_t i = 0; i < series.x.size(); ++i) {
      const std::string& text = series.texts[series.source[i]];
      if (text.empty()) continue;
      const ImVec2 at = ImPlot::PlotToPixels(series.x[i], series.y[i]), size = text_size(text);
      const float gap = radius + 0.15f * em;
      placer.place(
          ImPlot::GetPlotDrawList(), text,
          {at + ImVec2(gap, -size.y / 2), at + ImVec2(-gap - size.x, -size.y / 2),
           at + ImVec2(-size.x / 2, -gap - size.y), at + ImVec2(-size.x / 2, gap),
           at + ImVec2(gap, -size.y - 0.1f * em), at + ImVec2(gap, 0.1f * em),
           at + ImVec2(-gap - size.x, -size.y - 0.1f * em), at + ImVec2(-gap - size.x, 0.1f * em)},
          color);
    }
  }
  ImGui::PopFont();
  ImPlot::PopPlotClipRect();
}

}  // namespace moonshard::viewer
