// Bars side by side and stacked, upright or lying, with values, whiskers and the stubs of bars that
// have no figure.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <implot.h>

#include "viewer/render/plot_parts.h"
#include "viewer/render/plot_text.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxValueTexts = 400;  // more are never readable, and cost time

PixelBox box_of(const PreparedPanel& panel, double place, double from, double to) {
  const double half = panel.bar_width * 0.94 / 2;
  return {to_pixels(panel, place - half, from), to_pixels(panel, place + half, to)};
}

bool in_sight(const PixelBox& box) {
  const ImVec2 min = ImPlot::GetPlotPos(), max = min + ImPlot::GetPlotSize();
  return box.max.x >= min.x && box.min.x <= max.x && box.max.y >= min.y && box.min.y <= max.y;
}

// A text at the end of a bar: a bar's value, or what a stack adds up to.
struct EndText {
  double place, end;
  std::string text;
};

std::vector<EndText> stack_texts(const PreparedPanel& panel, const HiddenNames& hidden) {
  std::map<double, double> totals;
  for (const PreparedSeries& series : panel.series) {
    if (hidden.contains(series.name)) continue;
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (series.y[i] > 0) totals[series.x[i]] += series.y[i];
    }
  }
  std::vector<double> values;
  for (const auto& [place, total] : totals) values.push_back(total);
  const int decimals = common_decimals(values);
  std::vector<EndText> texts;
  for (const auto& [place, total] : totals) {
    EndText text{place, total, format_decimals(total, decimals)};
    if (!panel.stack_names.empty()) {
      const auto count = static_cast<double>(panel.stack_names.size());
      const double shift = place - std::floor(place + 0.5);
      const auto index = static_cast<size_t>(
          std::clamp(std::round(shift / panel.bar_width + (count - 1) / 2), 0.0, count - 1));
      text.text = fmt::format("{}  {}", panel.stack_names[index], text.text);
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

// Bars of both signs, or in percent, are differences: one below a two-thousandth of the largest
// counts as 0, because its digits are beyond the accuracy of the measurement. 0: all digits count.
double smallest_difference(const PreparedPanel& panel, const std::vector<double>& values) {
  const auto negative = [](double value) { return value < 0; };
  const bool differences = panel.y_label.ends_with("[%]") || std::ranges::any_of(values, negative);
  if (!differences || panel.y_log) return 0;
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return 5e-4 * largest;
}

std::vector<EndText> end_texts(const PreparedPanel& panel, const HiddenNames& hidden) {
  if (panel.kind == records::PlotKind::StackedBars) return stack_texts(panel, hidden);
  std::vector<double> values = all_values(panel);
  const double nothing = smallest_difference(panel, values);
  std::erase_if(values, [&](double value) { return std::abs(value) < nothing; });
  const int decimals = common_decimals(values);
  std::vector<EndText> texts;
  for (const PreparedSeries& series : panel.series) {
    if (hidden.contains(series.name)) continue;
    for (size_t i = 0; i < series.x.size(); ++i) {
      const double value = series.y[i];
      const auto& ends = value < 0 ? series.low : series.high;
      std::string text = value == 0                  ? "0"
                         : std::abs(value) < nothing ? "~0"
                                                     : format_decimals(value, decimals);
      const size_t source = series.source[i];
      if (source < series.texts.size() && !series.texts[source].empty()) {
        text += " " + series.texts[source];
      }
      texts.push_back({series.x[i], ends.empty() ? value : ends[i], std::move(text)});
    }
  }
  return texts;
}

void draw_end_texts(const PreparedPanel& panel, ValueText values, const HiddenNames& hidden,
                    const UiStyle& style) {
  push_small_font();
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const ImU32 color = style.colors().text;
  const float gap = 0.35f * font_unit();
  for (const EndText& entry : end_texts(panel, hidden)) {
    const ImVec2 end = to_pixels(panel, entry.place, entry.end);
    const bool negative = entry.end < 0;
    if (panel.horizontal) {
      const float shift = gap + text_size(entry.text).x / 2;
      draw_text_centered(draw, ImVec2(end.x + (negative ? -shift : shift), end.y), color,
                         entry.text);
    } else if (values == ValueText::Level) {
      const float shift = gap + ImGui::GetTextLineHeight() / 2;
      draw_text_centered(draw, ImVec2(end.x, end.y + (negative ? shift : -shift)), color,
                         entry.text);
    } else {
      draw_text_turned(draw, ImVec2(end.x, end.y + (negative ? gap : -gap)), kUpright,
                       negative ? 1.0f : 0.0f, color, entry.text);
    }
  }
  ImGui::PopFont();
}

void draw_whiskers(const PreparedPanel& panel, const PreparedSeries& series, const UiStyle& style) {
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const ImU32 color = style.colors().text;
  const float weight = std::max(1.0f, 0.085f * font_unit());
  const double cap = panel.bar_width * 0.16;
  for (size_t i = 0; i < series.low.size(); ++i) {
    if (!(series.low[i] < series.high[i])) continue;
    const double x = series.x[i], low = std::max(series.low[i], panel.y_log ? 1e-300 : -1e300);
    draw->AddLine(to_pixels(panel, x, low), to_pixels(panel, x, series.high[i]), color, weight);
    for (const double end : {low, series.high[i]}) {
      draw->AddLine(to_pixels(panel, x - cap, end), to_pixels(panel, x + cap, end), color, weight);
    }
  }
}

// A hatched stub where the bar would stand, with its status word over or inside it.
void draw_missing_bar(const PreparedPanel& panel, const MissingPoint& point, ImU32 color,
                      const UiStyle& style) {
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const PlotColors& colors = style.colors();
  const float em = font_unit();
  const ImVec2 plot_min = ImPlot::GetPlotPos(), plot_max = plot_min + ImPlot::GetPlotSize();
  const PixelBox place = box_of(panel, point.x, panel.y_range.min, panel.y_range.min);
  const ImVec2 text = text_size(point.text);
  if (panel.horizontal) {
    const ImVec2 max(plot_min.x + 1.6f * em, std::max(place.max.y - 1, place.min.y + 2));
    draw_hatch(draw, ImVec2(plot_min.x, place.min.y + 1), max, color);
    const ImVec2 center(max.x + 0.4f * em + text.x / 2, (place.min.y + place.max.y) / 2);
    draw_text_centered(draw, center, colors.text, point.text);
    return;
  }
  const float foot = plot_max.y, left = place.min.x + 1;
  const float right = std::max(place.max.x - 1, left + 2);
  const bool level = text.x <= right - left + 0.2f * em;
  const float height = level ? 1.3f * em : 1.6f * em;
  draw_hatch(draw, ImVec2(left, foot - height), ImVec2(right, foot), color);
  if (level) {
    const ImVec2 center((left + right) / 2, foot - height - 0.7f * em);
    draw_text_centered(draw, center, colors.text, point.text);
  } else if (right - left >= 0.55f * em) {
    draw_text_turned(draw, ImVec2((left + right) / 2, foot - height - 0.35f * em), kUpright, 0.0f,
                     colors.text, point.text);
  }
}

// One part of a stack: a thin border of the background tells neighbours apart, and a part with room
// carries its value.
void draw_part(const PixelBox& box, double value, int decimals, ImU32 color, const UiStyle& style) {
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const float em = font_unit();
  draw->AddRectFilled(box.min, box.max, color);
  const float width = box.max.x - box.min.x, height = box.max.y - box.min.y;
  if (height > 0.3f * em && width > 0.3f * em) {
    draw->AddRect(box.min, box.max, style.colors().background, 0, 0, 0.05f * em);
  }
  if (height < 1.25f * em) return;
  const std::string text = format_decimals(value, decimals);
  if (text_size(text).x + 0.4f * em > width) return;
  draw_text_centered(draw, (box.min + box.max) * 0.5f, readable_text_on(color), text);
}

void draw_stacks(const PreparedPanel& panel, const HiddenNames& hidden, const UiStyle& style) {
  const auto feet = stack_feet(panel, hidden);
  std::vector<double> values = all_values(panel);
  // Parts differ by powers of ten; the digits of the large ones are enough for all.
  const double largest = values.empty() ? 0 : *std::ranges::max_element(values);
  std::erase_if(values, [&](double value) { return value < 0.02 * largest; });
  const int decimals = common_decimals(values);
  push_small_font();
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const PreparedSeries& series = panel.series[s];
    if (hidden.contains(series.name)) continue;
    const ImU32 color = series_color(series.color, style.theme);
    for (size_t i = 0; i < series.x.size(); ++i) {
      const PixelBox box = box_of(panel, series.x[i], feet[s][i], feet[s][i] + series.y[i]);
      if (in_sight(box)) draw_part(box, series.y[i], decimals, color, style);
    }
  }
  ImGui::PopFont();
}

void draw_plain_bars(const PreparedPanel& panel, const HiddenNames& hidden, const UiStyle& style) {
  ImDrawList* draw = ImPlot::GetPlotDrawList();
  const double foot = panel.y_log ? panel.y_range.min : 0.0;
  for (const PreparedSeries& series : panel.series) {
    if (hidden.contains(series.name)) continue;
    const ImU32 color = series_color(series.color, style.theme);
    for (size_t i = 0; i < series.x.size(); ++i) {
      const PixelBox box = box_of(panel, series.x[i], foot, series.y[i]);
      if (in_sight(box)) draw->AddRectFilled(box.min, box.max, color);
    }
    draw_whiskers(panel, series, style);
  }
}

}  // namespace

void draw_hatch(ImDrawList* draw, ImVec2 min, ImVec2 max, ImU32 color) {
  draw->PushClipRect(min, max, true);
  const float height = max.y - min.y;
  const float step = std::max(0.45f * font_unit(), (max.x - min.x + height) / 200);
  for (float x = min.x - height; x < max.x; x += step) {
    draw->AddLine(ImVec2(x, max.y), ImVec2(x + height, min.y), with_alpha(color, 0.55f),
                  0.07f * font_unit());
  }
  draw->PopClipRect();
  draw->AddRect(min, max, color, 0, 0, 0.08f * font_unit());
}

ValueText choose_value_text(const PreparedPanel& panel, float bar_pixels, float& above) {
  above = 0.8f * font_unit();
  const std::vector<EndText> texts = end_texts(panel, {});
  if (texts.empty() || texts.size() > kMaxValueTexts) return ValueText::None;
  push_small_font();
  float widest = 0;
  for (const EndText& entry : texts) widest = std::max(widest, text_size(entry.text).x);
  const float em = font_unit();
  ImGui::PopFont();
  if (panel.horizontal) {
    if (bar_pixels < 0.75f * em) return ValueText::None;
    above = widest + 0.9f * em;
    return ValueText::Level;
  }
  if (widest + 0.25f * em <= bar_pixels) {
    above = 2.0f * em;
    return ValueText::Level;
  }
  if (bar_pixels >= 1.0f * em) {
    above = widest + 0.9f * em;
    return ValueText::Turned;
  }
  return ValueText::None;
}

void draw_bars(const PreparedPanel& panel, ValueText values, const HiddenNames& hidden,
               const UiStyle& style) {
  const bool stacked = panel.kind == records::PlotKind::StackedBars;
  ImPlot::PushPlotClipRect();
  stacked ? draw_stacks(panel, hidden, style) : draw_plain_bars(panel, hidden, style);
  for (const PreparedSeries& series : panel.series) {
    // A stack that failed belongs to no part of it: its mark takes no part's colour, and stays when
    // a part is switched off.
    if (!stacked && hidden.contains(series.name)) continue;
    const ImU32 color =
        stacked ? style.colors().muted_text : series_color(series.color, style.theme);
    for (const MissingPoint& point : series.missing) draw_missing_bar(panel, point, color, style);
  }
  if (values != ValueText::None) draw_end_texts(panel, values, hidden, style);
  ImPlot::PopPlotClipRect();
}

}  // namespace moonshard::viewer
