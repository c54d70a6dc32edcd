#include "viewer/widgets/choice.h"

#include <imgui.h>

#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

// Goes on in the line of the last widget when the next one fits; groups stand further apart.
void continue_line(const char* text, bool new_group) {
  const ImGuiStyle& style = ImGui::GetStyle();
  if (ImGui::GetCursorPosY() <= ImGui::GetCursorStartPos().y) return;  // the first of all
  const float gap = new_group ? 1.4f * ImGui::GetFontSize() : style.ItemSpacing.x;
  const float width = ImGui::GetFrameHeight() + style.ItemInnerSpacing.x +
                      ImGui::CalcTextSize(text, nullptr, true).x;
  const float end = ImGui::GetItemRectMax().x + gap + width;
  const float edge = ImGui::GetCursorScreenPos().x + ImGui::GetContentRegionAvail().x;
  if (end <= edge) ImGui::SameLine(0, gap);
}

void explain(const Choice& choice) {
  if (choice.meaning.empty() || !ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) return;
  show_tooltip(choice.meaning);
}

}  // namespace

bool choose(const char* id, std::span<const Choice> choices, int& value) {
  bool changed = false;
  ImGui::PushID(id);
  for (size_t i = 0; i < choices.size(); ++i) {
    continue_line(choices[i].text, i == 0);
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
  continue_line(choice.text, true);
  const bool changed = ImGui::Checkbox(choice.text, &value);
  explain(choice);
  return changed;
}

void show_help(std::string_view text) {
  continue_line("(?)", false);
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("(?)");
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) show_tooltip(text);
}

}  // namespace moonshard::viewer
