// Counters as small areas under the same time axis: each column shows the highest value in it.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/trace_parts.h"
#include "viewer/panels/trace_text.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr float kCounterPixels = 2.0f;

std::string counter_value(const TraceCounter& counter, double value) {
  const bool bytes = contains_lower(counter.name, "byte") || contains_lower(counter.name, "memory");
  return bytes ? format_bytes(value) : format_number(value);
}

}  // namespace

void draw_counter(const TraceFrame& frame, uint32_t number, float top, float height) {
  const TraceCounter& counter = frame.trace.counters[number];
  const CounterLevels& levels = frame.index.counters[number];
  const PlotColors& colors = frame.style.colors();
  ImDrawList* draw = ImGui::GetWindowDrawList();
  const float left = frame.left(), right = frame.right();
  const float roof = top + 0.3f * frame.em, floor = top + height - 0.25f * frame.em;
  const double low = std::min(0.0, levels.low), high = std::max(levels.high, low);
  const double per_pixel = high > low ? static_cast<double>(floor - roof) / (high - low) : 0;
  const auto y_of = [&](double value) {
    // Values of 1e308 either side of zero have no finite difference: they lie on the floor.
    const double height_px = (value - low) * per_pixel;
    return floor - (std::isfinite(height_px) ? static_cast<float>(height_px) : 0.0f);
  };
  const ImU32 color = series_color(5, frame.style.theme);
  const ImU32 fill = with_alpha(color, 0.30f), between = with_alpha(color, 0.45f);
  for (float x = frame.chart_x; x < right; x += kCounterPixels) {
    const float end = std::min(x + kCounterPixels, right);
    const std::optional<ValueRange> range =
        counter_range(counter, levels, {frame.time_at(x), frame.time_at(end)});
    if (!range) continue;
    const float y = y_of(range->high);
    draw->AddRectFilled(ImVec2(x, y), ImVec2(end, y_of(std::min(0.0, range->low))), fill);
    const float low_y = y_of(range->low);
    if (low_y > y + 1.5f) draw->AddRectFilled(ImVec2(x, y), ImVec2(end, low_y), between);
    draw->AddRectFilled(ImVec2(x, y), ImVec2(end, y + 1.5f), color);
  }
  draw->AddLine(ImVec2(left, top + height - 0.5f), ImVec2(right, top + height - 0.5f),
                with_alpha(colors.border, 0.45f));
  std::string name = clean_text(counter.name, 128);
  if (name.ends_with(" (bytes)")) name.resize(name.size() - 8);  // the value has its unit
  draw_clipped(frame, ImVec2(left + 0.7f * frame.em, roof), frame.chart_x - 4, colors.muted_text,
               name);
  draw_clipped(frame, ImVec2(left + 0.7f * frame.em, roof + 1.2f * frame.em), frame.chart_x - 4,
               colors.muted_text, "up to " + counter_value(counter, high));
}

void counter_tooltip(const TraceFrame& frame, uint32_t number, double time_us) {
  const TraceCounter& counter = frame.trace.counters[number];
  const double column = static_cast<double>(kCounterPixels) / frame.scale.pixels_per_us();
  const std::optional<ValueRange> range = counter_range(
      counter, frame.index.counters[number], {time_us - column / 2, time_us + column / 2});
  if (!range || !ImGui::BeginTooltip()) return;
  show_bold(clean_text(counter.name, 256), frame.style);
  show_text(range->low == range->high ? counter_value(counter, range->high)
                                      : fmt::format("{} to {}", counter_value(counter, range->low),
                                                    counter_value(counter, range->high)));
  show_text("at " + format_time(time_us), frame.style.colors().muted_text);
  ImGui::EndTooltip();
}

}  // namespace moonshard::viewer
