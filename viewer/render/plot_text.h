// Text in plots: measured, shortened, wrapped, centred, turned. All text is drawn as it stands,
// never through a format string. Sizes come from the font that is pushed at the call.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <imgui.h>

namespace moonshard::viewer {

inline constexpr float kUpright = 1.5707963f;  ///< a quarter turn

/// Height of the current font: the unit of distances in a plot.
inline float font_unit() {
  return ImGui::GetFontSize();
}

/// For values and texts inside a plot, and for notes; PopFont ends it.
inline void push_small_font() {
  ImGui::PushFont(nullptr, ImGui::GetStyle().FontSizeBase * 0.86f);
}

ImVec2 text_size(std::string_view text);

/// The text, or its beginning and "..." when it is wider than max_width.
std::string fit_text(const std::string& text, float max_width);

/// Names of one list, each no wider than max_width. What a name shares with its neighbours gives
/// way first, so that they are still told apart; then its middle.
std::vector<std::string> fit_names(const std::vector<std::string>& names, float max_width);

/// The same for a label that ends in its unit, "memory [MiB]": the unit stays.
std::string fit_label(const std::string& label, float max_width);

/// Breaks text into at most max_lines lines no wider than max_width where it can: after spaces and
/// after '_', '-', '/', '+', ',' and '.'. Empty when it cannot.
std::vector<std::string> wrap_text(const std::string& text, float max_width, size_t max_lines);

/// One line from its upper left corner on.
void draw_text(ImDrawList* draw, ImVec2 at, ImU32 color, std::string_view text);

/// One line with its middle at center.
void draw_text_centered(ImDrawList* draw, ImVec2 center, ImU32 color, std::string_view text);

/// One line turned counter-clockwise by angle (radians) about anchor, a point of the unturned line:
/// align 0 is its left end, 1 its right end; vertically always the middle.
void draw_text_turned(ImDrawList* draw, ImVec2 anchor, float angle, float align, ImU32 color,
                      std::string_view text);

}  // namespace moonshard::viewer
