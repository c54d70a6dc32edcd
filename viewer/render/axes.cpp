#include "viewer/render/plot_parts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include <implot_internal.h>

#include "viewer/render/plot_text.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

constexpr double kMaxTickNames = 500;

int write_tick(double value, char* buffer, int size, void*) {
  const std::string text = format_tick(value);
  const int length = std::min(static_cast<int>(text.size()), size - 1);
  std::memcpy(buffer, text.data(), static_cast<size_t>(length));
  buffer[length] = '\0';
  return length;
}

// Numbers by themselves where no texts are given. ImPlot copies the texts at once.
void set_ticks(ImAxis axis, const std::vector<double>& places,
               std::vector<std::string> texts = {}) {
  if (texts.empty()) std::ranges::transform(places, std::back_inserter(texts), format_tick);
  std::vector<const char*> labels;
  for (const std::string& text : texts) labels.push_back(text.c_str());
  ImPlot::SetupAxisTicks(axis, places.data(), static_cast<int>(places.size()), labels.data());
}

// The distinct x values as ticks, as long as their texts keep clear of each other; else ImPlot's.
void setup_value_ticks(const PreparedPanel& panel, const Range& range, float width) {
  std::vector<double> ticks;
  float last_end = -1e9f;
  for (const double x : panel.x_ticks) {
    if (panel.x_log && x <= 0) continue;
    const double share = panel.x_log ? std::log(x / range.min) / std::log(range.max / range.min)
                                     : (x - range.min) / range.size();
    const float half = text_size(format_tick(x)).x / 2;
    const float center = static_cast<float>(share) * width;
    if (center - half < last_end + 0.5f * font_unit()) {
      // On a linear axis a few close values may hide behind their neighbour; many are a sign that
      // the values are no grid, and even steps read better.
      if (!panel.x_log) return;
      continue;
    }
    ticks.push_back(x);
    last_end = center + half;
  }
  if (ticks.size() >= 2) set_ticks(ImAxis_X1, ticks);
}

// A log axis that spans less than a decade or two shows hardly a power of ten: add 2 and 5.
void setup_log_ticks(ImAxis axis, const Range& range) {
  const double decades = std::log10(range.max / range.min);
  if (!(decades > 0) || decades > 2.2) return;
  const std::vector<double> steps = decades > 1.2   ? std::vector<double>{1, 2, 5}
                                    : decades > 0.5 ? std::vector<double>{1, 1.5, 2, 3, 4, 5, 7}
                                                    : std::vector<double>{};
  std::vector<double> ticks;
  const double first = std::pow(10.0, std::floor(std::log10(range.min)));
  for (double decade = first; decade <= range.max; decade *= 10) {
    for (const double step : steps) {
      const double tick = step * decade;
      if (tick >= range.min && tick <= range.max) ticks.push_back(tick);
    }
  }
  if (steps.empty()) {  // so narrow that even steps read best
    const double raw = range.size() / 4;
    const double unit = std::pow(10.0, std::floor(std::log10(raw)));
    const double step = raw < 2 * unit ? unit : raw < 5 * unit ? 2 * unit : 5 * unit;
    for (double tick = std::ceil(range.min / step) * step; tick <= range.max; tick += step) {
      ticks.push_back(tick);
    }
  }
  if (ticks.size() >= 2) set_ticks(axis, ticks);
}

// A histogram of few samples has no halves of them.
void setup_count_ticks(const PreparedPanel& panel, const Range& range) {
  constexpr double kMostCounts = 10;
  const std::vector<double> values = all_values(panel);
  const auto whole = [](double value) { return value == std::floor(value); };
  if (range.max > kMostCounts || range.min < 0 || !std::ranges::all_of(values, whole)) return;
  std::vector<double> ticks;
  for (double tick = 0; tick <= range.max; ++tick) ticks.push_back(tick);
  if (ticks.size() >= 2) set_ticks(ImAxis_Y1, ticks);
}

// Names take at most this share of a panel; the plot has the rest.
constexpr float kNamesShare = 0.43f;

// Names from top to bottom on the y axis: rows of a heat map, or lying bars.
void setup_names(const std::vector<std::string>& names, ImVec2 area, float limit) {
  std::vector<double> places;
  std::vector<std::string> texts;
  const float row = area.y / static_cast<float>(std::max<size_t>(names.size(), 1));
  const size_t step = std::max<size_t>(1, static_cast<size_t>(std::ceil(1.1f * font_unit() / row)));
  for (size_t i = 0; i < names.size() && places.size() < kMaxTickNames; i += step) {
    places.push_back(static_cast<double>(i));
    texts.push_back(names[i]);
  }
  texts = fit_names(texts, limit);
  if (!places.empty()) set_ticks(ImAxis_Y1, places, texts);
}

std::vector<std::string> row_names(const PreparedPanel& panel) {
  if (panel.horizontal) return panel.categories;
  std::vector<std::string> names;
  for (const PreparedSeries& series : panel.series) names.push_back(series.name);
  return names;
}

// ImPlot draws the whole label but hides one that begins with "##"; nothing else in it is special.
void setup_label(ImAxis axis, const std::string& label, float room, ImPlotAxisFlags flags) {
  const std::string shown = (label.starts_with("##") ? "\u200b" : "") + fit_label(label, room);
  ImPlot::SetupAxis(axis, label.empty() ? nullptr : shown.c_str(), flags);
}

// The scale once more above lying bars that are taller than a window: nobody should have to scroll
// to its foot for what the bars mean. It follows the axis below when that is zoomed.
void setup_upper_axis(const std::string& label, bool log_scale, float room) {
  setup_label(ImAxis_X2, label, room,
              ImPlotAxisFlags_AuxDefault | ImPlotAxisFlags_NoMenus | ImPlotAxisFlags_NoHighlight);
  const ImPlotRange below = ImPlot::GetCurrentPlot()->Axes[ImAxis_X1].Range;
  if (log_scale) ImPlot::SetupAxisScale(ImAxis_X2, ImPlotScale_Log10);
  ImPlot::SetupAxisFormat(ImAxis_X2, write_tick);
  ImPlot::SetupAxisLimits(ImAxis_X2, below.Min, below.Max, ImPlotCond_Always);
}

void setup_limits(ImAxis axis, const Range& range, ImPlotCond cond) {
  ImPlot::SetupAxisLimits(axis, range.min, range.max, cond);
  // Zooming in until doubles cannot separate ticks would make ImPlot loop for ever.
  const double least = std::max(std::abs(range.min), std::abs(range.max)) * 1e-9;
  ImPlot::SetupAxisZoomConstraints(axis, least, kMaxMagnitude * 10);
}

}  // namespace

bool has_named_x(const PreparedPanel& panel) {
  return !panel.categories.empty() && !panel.horizontal;
}

bool has_named_y(const PreparedPanel& panel) {
  return panel.horizontal || panel.kind == records::PlotKind::HeatMap;
}

bool has_upper_axis(const PreparedPanel& panel, float height) {
  return panel.horizontal && height > kTallEm * font_unit();
}

float names_limit(float width) {
  return std::max(width * kNamesShare, 4 * font_unit());
}

float names_width(const PreparedPanel& panel, float limit) {
  float widest = 0;
  for (const std::string& name : row_names(panel)) widest = std::max(widest, text_size(name).x);
  widest = std::min(widest, limit);
  return widest + (panel.x_label.empty() ? 1.2f : 2.8f) * font_unit();
}

void setup_axes(const PreparedPanel& panel, const Range& y_range, ImVec2 area, float name_room,
                ImPlotCond cond) {
  const ImPlotAxisFlags plain = ImPlotAxisFlags_NoInitialFit | ImPlotAxisFlags_NoMenus;
  ImPlotAxisFlags names = plain | ImPlotAxisFlags_NoGridLines | ImPlotAxisFlags_Invert;
  const bool rows = has_named_y(panel);
  if (rows && name_room <= 0) names |= ImPlotAxisFlags_NoTickLabels;
  ImPlotAxisFlags x_flags = plain;
  // Names below the plot are drawn by draw_category_labels.
  if (has_named_x(panel)) x_flags |= ImPlotAxisFlags_NoDecorations;
  const std::string& below = panel.horizontal ? panel.y_label : panel.x_label;
  const std::string& beside = panel.horizontal ? panel.x_label : panel.y_label;
  setup_label(ImAxis_X1, below, area.x, x_flags);
  setup_label(ImAxis_Y1, rows && name_room <= 0 ? "" : beside, area.y, rows ? names : plain);
  const bool log_below = panel.horizontal ? panel.y_log : panel.x_log;
  const bool log_beside = !panel.horizontal && panel.y_log;
  if (log_below) ImPlot::SetupAxisScale(ImAxis_X1, ImPlotScale_Log10);
  if (log_beside) ImPlot::SetupAxisScale(ImAxis_Y1, ImPlotScale_Log10);
  ImPlot::SetupAxisFormat(ImAxis_X1, write_tick);
  if (!rows) ImPlot::SetupAxisFormat(ImAxis_Y1, write_tick);
  setup_limits(ImAxis_X1, panel.horizontal ? y_range : panel.x_range, cond);
  setup_limits(ImAxis_Y1, panel.horizontal ? panel.x_range : y_range, cond);
  if (has_upper_axis(panel, area.y)) setup_upper_axis(below, log_below, area.x);
  if (!panel.x_ticks.empty() && !panel.horizontal) setup_value_ticks(panel, panel.x_range, area.x);
  if (log_below && panel.x_ticks.empty())
    setup_log_ticks(ImAxis_X1, panel.horizontal ? y_range : panel.x_range);
  if (log_beside) setup_log_ticks(ImAxis_Y1, y_range);
  if (panel.kind == records::PlotKind::StackedArea) setup_count_ticks(panel, y_range);
  if (rows) setup_names(row_names(panel), area, name_room);
}

}  // namespace moonshard::viewer
