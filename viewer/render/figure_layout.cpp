// How a figure is divided into panels: columns, rows, and what they need to be read.
#include <algorithm>
#include <cmath>

#include "viewer/render/plot_parts.h"
#include "viewer/render/plot_renderer.h"
#include "viewer/render/plot_text.h"

namespace moonshard::viewer {
namespace {

using records::PlotKind;

// The least height of one panel in which bars, words and axes keep apart.
float readable_panel_height(const PreparedPlot& plot, const PreparedPanel& panel, float width,
                            const UiStyle& style) {
  constexpr float kPlotEm = 8, kBarEm = 1.2f, kAxisEm = 2.5f;
  float height = kPlotEm * font_unit();
  if (panel.horizontal) {
    const bool beside = panel.kind == PlotKind::Bars && panel.bar_width > 0;  // else on each other
    // As many bars in each category as the fullest of them has.
    const float bars =
        beside ? std::max(1.0f, std::round(0.82f / static_cast<float>(panel.bar_width))) : 1.0f;
    height = std::max(2.5f * font_unit(), kBarEm * font_unit() * bars *
                                              static_cast<float>(panel.categories.size()) * 1.12f);
    if (plot.panels.size() == 1) height = std::max(height, kPlotEm * font_unit());
    if (has_upper_axis(panel, height)) height += kAxisEm * font_unit();
  }
  // The name of the axis stands upright beside the plot.
  constexpr float kMaxLabelEm = 14;
  if (!panel.horizontal)
    height = std::max(height, std::min(text_size(panel.y_label).x + 0.5f * font_unit(),
                                       kMaxLabelEm * font_unit()));
  height += title_block(panel.title, {}, width, style, 1.0f, nullptr);
  if (!plot.shared_legend) height += legend_height(panel.legend, width, 1e5f);
  const float axis = kAxisWidthEm * font_unit();
  const float named = panel.x_label.empty() ? 0 : 1.35f * ImGui::GetTextLineHeight();
  height += has_named_x(panel)
                ? layout_category_labels(panel.categories, width - axis, axis).height + named
                : kAxisEm * font_unit();
  return height + 0.9f * font_unit();
}

std::vector<float> readable_row_heights(const PreparedPlot& plot, float width,
                                        const UiStyle& style) {
  const size_t columns = std::max<size_t>(plot.columns, 1);
  std::vector<float> rows((plot.panels.size() + columns - 1) / columns, 0.0f);
  for (size_t i = 0; i < plot.panels.size(); ++i) {
    float& row = rows[i / columns];
    row = std::max(row, readable_panel_height(plot, plot.panels[i], width, style));
  }
  return rows;
}

// Lying bars of several figures of the same points stand in one row: names are needed only once.
bool rows_share_names(const PreparedPlot& plot, size_t columns) {
  if (columns < 2 || plot.panels.size() % columns != 0) return false;
  for (size_t i = 0; i < plot.panels.size(); ++i) {
    const PreparedPanel& first = plot.panels[i - i % columns];
    if (!plot.panels[i].horizontal || plot.panels[i].categories != first.categories) return false;
  }
  return true;
}

struct Column {
  float left = 0, width = 0;
};

std::vector<Column> layout_columns(const PreparedPlot& plot, float width, float gap, float& names) {
  const auto count = static_cast<float>(plot.columns);
  names = 0;
  if (rows_share_names(plot, plot.columns)) {
    const float limit = names_limit(width * 0.8f);
    float widest = 0;
    for (const PreparedPanel& panel : plot.panels) {
      widest = std::max(widest, names_width(panel, limit));
    }
    names = widest;
  }
  const float each = (width - names - gap * (count - 1)) / count;
  std::vector<Column> columns;
  float left = 0;
  for (size_t c = 0; c < plot.columns; ++c) {
    columns.push_back({left, each + (c == 0 ? names : 0)});
    left += columns.back().width + gap;
  }
  return columns;
}

}  // namespace

float title_block(const std::string& text, ImVec2 top_left, float width, const UiStyle& style,
                  float factor, ImDrawList* draw) {
  if (text.empty()) return 0;
  ImGui::PushFont(style.bold, ImGui::GetStyle().FontSizeBase * factor);
  std::vector<std::string> lines = wrap_text(text, width, 3);
  if (lines.empty()) lines = {fit_text(text, width)};
  const float line_height = ImGui::GetTextLineHeight();
  for (size_t i = 0; draw && i < lines.size(); ++i) {
    const ImVec2 center(top_left.x + width / 2,
                        top_left.y + (static_cast<float>(i) + 0.5f) * line_height);
    draw_text_centered(draw, center, style.colors().text, lines[i]);
  }
  ImGui::PopFont();
  return (static_cast<float>(lines.size()) + 0.35f) * line_height;
}

std::vector<std::string> note_lines(const std::string& note, float width) {
  std::vector<std::string> lines = wrap_text(note, width, 4);
  return lines.empty() ? std::vector{fit_text(note, width)} : lines;
}

float note_height(const std::string& note, float width) {
  if (note.empty()) return 0;
  push_small_font();
  const float lines = static_cast<float>(note_lines(note, width).size());
  const float height = lines * ImGui::GetTextLineHeight() * kNoteLine;
  ImGui::PopFont();
  return height + 0.45f * font_unit();
}

std::vector<PanelFrame> layout_panels(const PreparedPlot& plot, ImVec2 min, ImVec2 size,
                                      const UiStyle& style) {
  const ImVec2 gap(1.2f * font_unit(), 0.9f * font_unit());
  float shared_names = 0;
  const std::vector<Column> columns = layout_columns(plot, size.x, gap.x, shared_names);
  std::vector<float> heights = readable_row_heights(plot, columns.back().width, style);
  const bool lying = std::ranges::any_of(plot.panels, &PreparedPanel::horizontal);
  if (!lying) std::ranges::fill(heights, 1.0f);
  const float room = size.y - gap.y * static_cast<float>(heights.size() - 1);
  float sum = 0;
  for (const float height : heights) sum += height;
  std::vector<PanelFrame> frames;
  std::vector<float> footers(heights.size(), 0.0f), titles(heights.size(), 0.0f);
  float top = min.y;
  for (size_t i = 0; i < plot.panels.size(); ++i) {
    const size_t row = i / plot.columns, column = i % plot.columns;
    if (column == 0 && row > 0) top += heights[row - 1] / sum * room + gap.y;
    PanelFrame frame;
    frame.min = ImVec2(min.x + columns[column].left, top);
    frame.size = ImVec2(columns[column].width, heights[row] / sum * room);
    const PreparedPanel& panel = plot.panels[i];
    frame.names = shared_names <= 0 ? names_limit(frame.size.x - color_bar_width(panel))
                  : column == 0     ? names_limit(size.x * 0.8f)
                                    : 0;
    if (shared_names > 0 && column == 0) {
      // Plots of one column begin at the same place, however long the names of a row are.
      const float inset = shared_names - names_width(panel, frame.names);
      frame.min.x += inset;
      frame.size.x -= inset;
    }
    titles[row] =
        std::max(titles[row], title_block(panel.title, {}, frame.size.x, style, 1.0f, nullptr));
    if (has_named_x(panel)) {
      const float axis = kAxisWidthEm * font_unit();
      frame.labels = layout_category_labels(
          panel.categories, frame.size.x - axis - color_bar_width(panel), axis * 0.85f);
      const float label = panel.x_label.empty() ? 0 : 1.35f * ImGui::GetTextLineHeight();
      footers[row] = std::max(footers[row], frame.labels.height + label);
    }
    frames.push_back(std::move(frame));
  }
  // Plots that are compared must not differ in what stands above their data.
  float ruler = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    PanelFrame& frame = frames[i];
    frame.footer = footers[i / plot.columns];
    frame.title = titles[i / plot.columns];
    const ImVec2 area(frame.size.x - kAxisWidthEm * font_unit(),
                      frame.size.y - frame.title - 2.5f * font_unit());
    ruler = std::max(ruler, band_ruler_height(plot.panels[i], area));
  }
  for (PanelFrame& frame : frames) frame.ruler = ruler;
  return frames;
}

size_t readable_columns(const PreparedPlot& plot, size_t asked, float width) {
  constexpr float kNarrowestEm = 13, kNarrowestBarsEm = 10;
  // Rows that share their names stay rows: all of their panels side by side, or one by one.
  if (plot.panels.size() > asked && asked > 1) {
    if (rows_share_names(plot, asked)) {
      return width >= kNarrowestBarsEm * font_unit() * static_cast<float>(asked) ? asked : 1;
    }
  }
  const auto fitting = static_cast<size_t>(std::max(width / (kNarrowestEm * font_unit()), 1.0f));
  return std::clamp<size_t>(std::min(asked, fitting), 1, std::max<size_t>(plot.panels.size(), 1));
}

float readable_height(const PreparedPlot& plot, float width, const UiStyle& style) {
  const size_t columns = std::max<size_t>(plot.columns, 1);
  const float cell =
      (width - 1.6f * font_unit()) / static_cast<float>(columns) - 1.2f * font_unit();
  float sum = title_block(plot.title, {}, width, style, 1.18f, nullptr) + 1.6f * font_unit();
  for (const float row : readable_row_heights(plot, cell, style)) sum += row + 0.9f * font_unit();
  if (plot.shared_legend) sum += legend_height(plot.legend, width, 1e5f);
  return sum + note_height(plot.note, width - 1.6f * font_unit());
}

}  // namespace moonshard::viewer
