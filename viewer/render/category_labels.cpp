#include "viewer/render/plot_parts.h"

#include <algorithm>
#include <cmath>

#include <implot.h>

#include "viewer/render/plot_text.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr float kLean = 0.62f;  // radians, about 35 degrees
constexpr size_t kMaxLines = 4;
constexpr float kMaxTurnedEm = 13.0f;  // longer names are shortened
constexpr float kMaxUprightEm = 9.5f;  // longer ones lean, even if the first is then shortened

// Level labels, or none when one of them does not fit its slot.
bool layout_level(const std::vector<std::string>& names, float slot, CategoryLabels& labels) {
  size_t most_lines = 1;
  for (const std::string& name : names) {
    labels.lines.push_back(wrap_text(name, slot, kMaxLines));
    if (labels.lines.back().empty()) {
      labels.lines.clear();
      return false;
    }
    most_lines = std::max(most_lines, labels.lines.back().size());
  }
  labels.height = (static_cast<float>(most_lines) + 0.35f) * ImGui::GetTextLineHeight();
  return true;
}

// True when names would be cut at the left edge that are short enough to stand upright instead.
bool leans_out(const std::vector<std::string>& names, float slot, float room_left) {
  const float em = ImGui::GetFontSize();
  bool cut = false;
  for (size_t i = 0; i < names.size(); ++i) {
    const float width = text_size(names[i]).x;
    if (width > kMaxUprightEm * em) return false;
    cut = cut || width * std::cos(kLean) > room_left + (static_cast<float>(i) + 0.5f) * slot;
  }
  return cut;
}

}  // namespace

CategoryLabels layout_category_labels(const std::vector<std::string>& names, float width,
                                      float room_left) {
  CategoryLabels labels;
  if (names.empty()) return labels;
  const float em = ImGui::GetFontSize();
  const float slot = width / static_cast<float>(names.size());
  if (slot > 1.5f * em && layout_level(names, slot - 0.5f * em, labels)) return labels;
  // Leaning lines need line height / sin(lean) between ticks; upright ones the line height itself.
  labels.angle = slot * std::sin(kLean) >= 1.05f * em ? kLean : kUpright;
  if (labels.angle == kLean && leans_out(names, slot, room_left)) labels.angle = kUpright;
  labels.step = std::max<size_t>(1, static_cast<size_t>(std::ceil(1.1f * em / slot)));
  float longest = 0;
  const std::vector<std::string> fitting = fit_names(names, kMaxTurnedEm * em);
  for (size_t i = 0; i < names.size(); ++i) {
    const float to_edge = room_left + (static_cast<float>(i) + 0.5f) * slot;
    const float lean_room = labels.angle == kLean ? to_edge / std::cos(kLean) : kMaxTurnedEm * em;
    const bool shown = i % labels.step == 0;
    labels.lines.push_back({});
    if (!shown) continue;
    labels.lines.back().push_back(
        shorten_middle(fitting[i], std::min(kMaxTurnedEm * em, lean_room)));
    longest = std::max(longest, text_size(labels.lines.back().front()).x);
  }
  labels.height = longest * std::sin(labels.angle) + em * std::cos(labels.angle) + 0.6f * em;
  return labels;
}

void draw_category_labels(ImDrawList* draw, const CategoryLabels& labels, float top, ImU32 color) {
  const float em = ImGui::GetFontSize();
  const float left = ImPlot::GetPlotPos().x, right = left + ImPlot::GetPlotSize().x;
  for (size_t i = 0; i < labels.lines.size(); i += labels.step) {
    const float x = ImPlot::PlotToPixels(static_cast<double>(i), 0.0).x;
    if (x < left - 0.5f || x > right + 0.5f) continue;  // panned out of sight
    if (labels.angle > 0) {
      draw_text_turned(draw, ImVec2(x, top + 0.55f * em), labels.angle, 1.0f, color,
                       labels.lines[i].front());
      continue;
    }
    float y = top + 0.35f * em + ImGui::GetTextLineHeight() / 2;
    for (const std::string& line : labels.lines[i]) {
      draw_text_centered(draw, ImVec2(x, y), color, line);
      y += ImGui::GetTextLineHeight();
    }
  }
}

}  // namespace moonshard::viewer
