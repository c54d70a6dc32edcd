#include "viewer/render/plot_renderer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <implot.h>

#include "viewer/render/category_labels.h"
#include "viewer/render/hover.h"
#include "viewer/render/legend.h"
#include "viewer/render/marks.h"
#include "viewer/render/plot_text.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

using records::PlotKind;

// Width of the y axis with its label, before ImPlot has measured it. Only the choice between level
// and turned text depends on it.
constexpr float kAxisWidthEm = 5.0f;

struct PanelFrame {
  ImVec2 min, size;  // the panel's share of the figure
  float footer = 0;  // below the plot: category names and x label; equal for all panels
  CategoryLabels labels;
};

float em() {
  return ImGui::GetFontSize();
}

void push_title_font(const UiStyle& style, float factor) {
  ImGui::PushFont(style.bold, ImGui::GetStyle().FontSizeBase * factor);
}

// Height of a centred title that may wrap; draws it when draw is given.
float title_block(const std::string& text, ImVec2 top_left, float width, const UiStyle& style,
                  float factor, ImDrawList* draw) {
  if (text.empty()) return 0;
  push_title_font(style, factor);
  std::vector<std::string> lines = wrap_text(text, width, 3);
  if (lines.empty()) lines = {fit_text(text, width)};
  const float line_height = ImGui::GetTextLineHeight();
  for (size_t i = 0; draw && i < lines.size(); ++i) {
    const ImVec2 center(top_left.x + width / 2,
                        top_left.y + (static_cast<float>(i) + 0.5f) * line_height);
    draw_text_centered(draw, center, plot_colors(style.theme).text, lines[i]);
  }
  ImGui::PopFont();
  return (static_cast<float>(lines.size()) + 0.35f) * line_height;
}

int write_tick(double value, char* buffer, int size, void*) {
  const std::string text = format_tick(value);
  const int length = std::min(static_cast<int>(text.size()), size - 1);
  std::memcpy(buffer, text.data(), static_cast<size_t>(length));
  buffer[length] = '\0';
  return length;
}

// The distinct x values as ticks, as long as their texts keep clear of each other; else ImPlot's.
void setup_value_ticks(const PreparedPanel& panel, const Range& range, float width) {
  std::vector<double> ticks;
  float last_end = -1e9f;
  for (const double x : panel.x_ticks) {
    const double share = panel.x_log ? std::log(x / range.min) / std::log(range.max / range.min)
                                     : (x - range.min) / range.size();
    const float half = text_size(format_tick(x)).x / 2;
    const float center = static_cast<float>(share) * width;
    if (center - half < last_end + 0.5f * em()) {
      // On a linear axis a few close values may hide behind their neighbour; many are a sign that
      // the values are no grid, and even steps read better.
      if (!panel.x_log) return;
      continue;
    }
    ticks.push_back(x);
    last_end = center + half;
  }
  if (ticks.size() < 2) return;
  std::vector<std::string> texts;
  std::vector<const char*> labels;
  for (const double x : ticks) texts.push_back(format_tick(x));
  for (const std::string& text : texts) labels.push_back(text.c_str());
  ImPlot::SetupAxisTicks(ImAxis_X1, ticks.data(), static_cast<int>(ticks.size()), labels.data());
}

void setup_axes(const PreparedPanel& panel, const Range& y_range, ImVec2 area, ImPlotCond cond) {
  ImPlotAxisFlags x_flags = ImPlotAxisFlags_NoInitialFit | ImPlotAxisFlags_NoMenus;
  const ImPlotAxisFlags y_flags = x_flags;
  if (!panel.categories.empty()) {
    x_flags |= ImPlotAxisFlags_NoDecorations;  // names are drawn by draw_category_labels
  }
  // ImPlot draws the whole label but hides one that begins with "##"; nothing else in it is
  // special.
  const auto shown = [](const std::string& label, float room) {
    return (label.starts_with("##") ? "\u200b" : "") + fit_text(label, room);
  };
  const std::string x_label = shown(panel.x_label, area.x);
  const std::string y_label = shown(panel.y_label, area.y);
  ImPlot::SetupAxis(ImAxis_X1, panel.x_label.empty() ? nullptr : x_label.c_str(), x_flags);
  ImPlot::SetupAxis(ImAxis_Y1, panel.y_label.empty() ? nullptr : y_label.c_str(), y_flags);
  if (panel.x_log) ImPlot::SetupAxisScale(ImAxis_X1, ImPlotScale_Log10);
  if (panel.y_log) ImPlot::SetupAxisScale(ImAxis_Y1, ImPlotScale_Log10);
  ImPlot::SetupAxisFormat(ImAxis_X1, write_tick);
  ImPlot::SetupAxisFormat(ImAxis_Y1, write_tick);
  ImPlot::SetupAxisLimits(ImAxis_X1, panel.x_range.min, panel.x_range.max, cond);
  ImPlot::SetupAxisLimits(ImAxis_Y1, y_range.min, y_range.max, cond);
  // Zooming in until doubles cannot tell ticks apart would make ImPlot step for ever.
  const auto least = [](const Range& range) {
    return std::max(std::abs(range.min), std::abs(range.max)) * 1e-9;
  };
  ImPlot::SetupAxisZoomConstraints(ImAxis_X1, least(panel.x_range), kMaxMagnitude * 10);
  ImPlot::SetupAxisZoomConstraints(ImAxis_Y1, least(y_range), kMaxMagnitude * 10);
  if (!panel.x_ticks.empty()) setup_value_ticks(panel, panel.x_range, area.x);
}

void push_plot_style(const PreparedPanel& panel) {
  const float unit = em() / UiContext::kFontSize;
  ImPlot::PushStyleVar(ImPlotStyleVar_PlotPadding, ImVec2(2 * unit, 2 * unit));
  ImPlot::PushStyleVar(ImPlotStyleVar_LabelPadding, ImVec2(6 * unit, 5 * unit));
  ImPlot::PushStyleVar(ImPlotStyleVar_MajorTickLen, ImVec2(5 * unit, 5 * unit));
  ImPlot::PushStyleVar(ImPlotStyleVar_MinorTickLen, ImVec2(3 * unit, 3 * unit));
  ImPlot::PushStyleVar(ImPlotStyleVar_PlotMinSize, ImVec2(40 * unit, 40 * unit));
  // ImPlot labels the minor steps of a linear axis as well; on a log axis they only fill in.
  ImPlot::PushStyleVar(ImPlotStyleVar_MinorAlpha, panel.y_log ? 0.35f : 1.0f);
}

constexpr int kNumPlotStyles = 6;

void draw_data(const PreparedPanel& panel, ValueText values, const std::set<size_t>& hidden,
               const UiStyle& style) {
  switch (panel.kind) {
    case PlotKind::Bars:
      return draw_bars(panel, values, hidden, style);
    case PlotKind::Lines:
      return draw_lines(panel, hidden, style);
    case PlotKind::Scatter:
      return draw_scatter(panel, hidden, style);
  }
}

void draw_x_label(const PreparedPanel& panel, float bottom, const UiStyle& style) {
  const float left = ImPlot::GetPlotPos().x, width = ImPlot::GetPlotSize().x;
  draw_text_centered(ImGui::GetWindowDrawList(),
                     ImVec2(left + width / 2, bottom - ImGui::GetTextLineHeight() * 0.6f),
                     plot_colors(style.theme).text, fit_text(panel.x_label, width));
}

bool is_empty(const PreparedPanel& panel) {
  const auto no_points = [](const PreparedSeries& s) { return s.x.empty() && s.missing.empty(); };
  return std::all_of(panel.series.begin(), panel.series.end(), no_points);
}

void draw_no_data(const UiStyle& style) {
  const ImVec2 min = ImPlot::GetPlotPos(), size = ImPlot::GetPlotSize();
  draw_text_centered(ImGui::GetWindowDrawList(), min + size * 0.5f,
                     plot_colors(style.theme).muted_text, "no data");
}

// Draws one panel. True: the user asked by a double click to see the whole range again.
bool draw_panel(const PreparedPanel& panel, const PanelFrame& frame, bool own_legend,
                std::set<size_t>& hidden, bool fit, const UiStyle& style, bool interactive) {
  ImDrawList* window_draw = ImGui::GetWindowDrawList();
  float y = frame.min.y;
  const float bottom = frame.min.y + frame.size.y;
  y += title_block(panel.title, ImVec2(frame.min.x, y), frame.size.x, style, 1.0f, window_draw);
  if (own_legend) {
    draw_legend(panel, ImVec2(frame.min.x, y), frame.size.x, style, interactive, hidden);
    y += legend_height(panel, frame.size.x);
  }
  const bool named_axis = !panel.categories.empty();
  const ImVec2 size(frame.size.x, bottom - y - (named_axis ? frame.footer : 0));
  if (size.x < 3 * em() || size.y < 3 * em()) return false;  // no room for anything readable

  const ImVec2 area(size.x - kAxisWidthEm * em(), size.y - (named_axis ? 0 : 2.5f * em()));
  const float bar_pixels = static_cast<float>(panel.bar_width / panel.x_range.size()) * area.x;
  float above = 0;
  const bool bars = panel.kind == PlotKind::Bars;
  const ValueText values = bars ? choose_value_text(panel, bar_pixels, above) : ValueText::None;
  if (!bars) above = 0.9f * em();
  const Range y_range = with_room_above(panel.y_range, area.y, above, panel.y_log);

  ImPlotFlags flags = ImPlotFlags_NoLegend | ImPlotFlags_NoTitle | ImPlotFlags_NoFrame |
                      ImPlotFlags_NoMouseText | ImPlotFlags_NoMenus;
  if (!interactive) flags |= ImPlotFlags_NoInputs;
  ImGui::SetCursorScreenPos(ImVec2(frame.min.x, y));
  push_plot_style(panel);
  bool refit = false;
  if (ImPlot::BeginPlot("##plot", size, flags)) {
    setup_axes(panel, y_range, area, fit || !interactive ? ImPlotCond_Always : ImPlotCond_Once);
    draw_data(panel, values, hidden, style);
    if (named_axis) {
      const float top = ImPlot::GetPlotPos().y + ImPlot::GetPlotSize().y;
      draw_category_labels(window_draw, frame.labels, top, plot_colors(style.theme).text);
      if (!panel.x_label.empty()) draw_x_label(panel, bottom, style);
    }
    if (is_empty(panel)) draw_no_data(style);
    if (interactive) draw_hover_text(panel, hidden, style);
    refit = interactive && ImPlot::IsPlotHovered() && ImGui::IsMouseDoubleClicked(0);
    ImPlot::EndPlot();
  }
  ImPlot::PopStyleVar(kNumPlotStyles);
  return refit;
}

// Splits the figure into equal columns whose plots end at the same height.
std::vector<PanelFrame> layout_panels(const PreparedPlot& plot, ImVec2 min, ImVec2 size) {
  const auto count = static_cast<float>(plot.panels.size());
  const float gap = 1.2f * em();
  const float width = (size.x - gap * (count - 1)) / count;
  std::vector<PanelFrame> frames;
  float footer = 0;
  for (size_t i = 0; i < plot.panels.size(); ++i) {
    PanelFrame frame;
    frame.min = ImVec2(min.x + static_cast<float>(i) * (width + gap), min.y);
    frame.size = ImVec2(width, size.y);
    const PreparedPanel& panel = plot.panels[i];
    if (!panel.categories.empty()) {
      const float axis = kAxisWidthEm * em();
      frame.labels = layout_category_labels(panel.categories, width - axis, axis * 0.8f);
      const float label = panel.x_label.empty() ? 0 : 1.35f * ImGui::GetTextLineHeight();
      footer = std::max(footer, frame.labels.height + label);
    }
    frames.push_back(std::move(frame));
  }
  for (PanelFrame& frame : frames) frame.footer = footer;
  return frames;
}

}  // namespace

void draw_plot(const PreparedPlot& plot, PlotState& state, ImVec2 size, const UiStyle& style,
               bool interactive) {
  if (plot.panels.empty()) return;
  ImDrawList* draw = ImGui::GetWindowDrawList();
  const ImVec2 origin = ImGui::GetCursorScreenPos();
  const PlotColors& colors = plot_colors(style.theme);
  draw->AddRectFilled(origin, origin + size, colors.background);
  state.hidden.resize(plot.panels.size());

  const float margin = 0.8f * em();
  ImVec2 min = origin + ImVec2(margin, margin);
  ImVec2 rest = size - ImVec2(2 * margin, 2 * margin);
  const float title = title_block(plot.title, min, rest.x, style, 1.18f, draw);
  min.y += title;
  rest.y -= title;
  if (plot.shared_legend) {
    draw_legend(plot.panels[0], min, rest.x, style, interactive, state.hidden[0]);
    const float legend = legend_height(plot.panels[0], rest.x);
    min.y += legend;
    rest.y -= legend;
  }
  bool refit = false;
  const std::vector<PanelFrame> frames = layout_panels(plot, min, rest);
  for (size_t i = 0; i < plot.panels.size(); ++i) {
    std::set<size_t>& hidden = state.hidden[plot.shared_legend ? 0 : i];
    ImGui::PushID(static_cast<int>(i));
    refit |= draw_panel(plot.panels[i], frames[i], !plot.shared_legend, hidden, state.fit, style,
                        interactive);
    ImGui::PopID();
  }
  state.fit = refit;  // applies from the next frame on
  // One item of the figure's size, so that the caller's layout goes on below it.
  ImGui::SetCursorScreenPos(origin);
  ImGui::Dummy(size);
}

}  // namespace moonshard::viewer
