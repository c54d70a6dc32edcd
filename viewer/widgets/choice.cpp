#include "viewer/widgets/choice.h"

#include <algorithm>

#include <imgui.h>

#include "viewer/widgets/definitions.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

// The width of a button or box with a text behind it.
float width_with(const char* text) {
  return ImGui::GetFrameHeight() + ImGui::GetStyle().ItemInnerSpacing.x +
         ImGui::CalcTextSize(text, nullptr, true).x;
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
    explain_item(choices[i].meaning);
  }
  ImGui::PopID();
  return changed;
}

bool choose_whether(const Choice& choice, bool& value) {
  continue_line(width_with(choice.text), true);
  const bool changed = ImGui::Checkbox(choice.text, &value);
  explain_item(choice.meaning);
  return changed;
}

bool pick_name(const char* label, std::string& picked, const std::vector<std::string>& names,
               const std::function<std::string(const std::string&)>& shown) {
  const auto text = [&](const std::string& name) { return shown ? shown(name) : name; };
  const std::string before = picked;
  if (!ImGui::BeginCombo(label, clean_text(text(picked), 256).c_str(),
                         ImGuiComboFlags_HeightLarge)) {
    return false;
  }
  for (const std::string& name : names) {
    if (ImGui::Selectable(literal_label(text(name), name).c_str(), name == before)) picked = name;
    if (name == before) ImGui::SetItemDefaultFocus();
    explain_item(definition_of(name));
  }
  ImGui::EndCombo();
  return picked != before;
}

bool button_at_right(const char* label) {
  const float width = ImGui::CalcTextSize(label).x + 2 * ImGui::GetStyle().FramePadding.x;
  continue_line(width);
  ImGui::SetCursorPosX(std::max(ImGui::GetCursorPosX(),
                                ImGui::GetCursorPosX() + ImGui::GetContentRegionAvail().x - width));
  return ImGui::Button(label);
}

void show_help(std::string_view text) {
  continue_line(ImGui::CalcTextSize("(?)").x);
  ImGui::AlignTextToFramePadding();
  ImGui::TextDisabled("(?)");
  explain_item(text);
}

}  // namespace moonshard::viewer
