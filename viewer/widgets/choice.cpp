#include "viewer/widgets/choice.h"

#include <imgui.h>

#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

// The width of a button or box with a text behind it.
float width_with(const char* text) {
  return ImGui::GetFrameHeight() + ImGui::GetStyle().ItemInnerSpacing.x +
         ImGui::CalcTextSize(text, nullptr, true).x;
}

void explain(const Choice& choice) {
  if (choice.meaning.empty() || !ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) return;
  show_tooltip(choice.meaning);
}

}  // namespace

void continue_line(float width, bool new_group) {
  if (ImGui::GetCursorPosY() <= ImGui::GetCursorStartPos().y) return;  // the first of all
  const float gap = new_group ? 1.4f * ImGui::GetFontSize() : ImGui::GetStyle().ItemSpacing.x;
  const float end = ImGui::GetItemRectMax().x + gap + width;
  const float edge = ImGui::GetCursorScreenPos().x + ImGui::GetContentRegionAvail().x;
  if (end <= edge) ImGui::SameLine(0, gap);
}

bool choose(const char* id, std::span<const Choice> choices, int& value) {
  bool changed = false;
  ImGui::PushID(id);
  for (size_t i = 0; i < choices.size(); ++i) {
    continue_line(width_with(choices[i].text), i == 0);
    if (ImGui::RadioButton(choices[i].text, value == static_cast<int>(i))) {
      changed = value != static_cast<int>(i);
      value = static_cast<int>(i);
    }
    explain(choices[i]);
  }
  ImGui::PopID();
  return changed;
}

bool choose_whether(const Choice& choice, bool& value) {
  continue_line(width_with(choice.text), true);
  const bool changed = ImGui::Checkbox(choice.text, &value);
  explain(choice);
  return changed;
}

void show_help(std::string_view text) {
  continue_line(ImGui::CalcTextSize("(?)").x);
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("(?)");
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) show_tooltip(text);
}

}  // namespace moonshard::viewer
