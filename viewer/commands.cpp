#include "viewer/commands.h"

#include <algorithm>
#include <cctype>

#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxRows = 14;

bool is_enabled(const Command& command) {
  return !command.enabled || command.enabled();
}

char lowered(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// "Ctrl+Shift+T"; empty for 0.
std::string chord_text(ImGuiKeyChord chord) {
  if (chord == 0) return "";
  std::string text;
  if (chord & ImGuiMod_Ctrl) text += "Ctrl+";
  if (chord & ImGuiMod_Shift) text += "Shift+";
  if (chord & ImGuiMod_Alt) text += "Alt+";
  return text + ImGui::GetKeyName(static_cast<ImGuiKey>(chord & ~ImGuiMod_Mask_));
}

}  // namespace

int fuzzy_score(std::string_view query, std::string_view text) {
  int score = 0;
  size_t at = 0;
  bool last_hit = false;
  for (const char wanted : query) {
    if (wanted == ' ') continue;
    bool found = false;
    for (; at < text.size() && !found; ++at) {
      if (lowered(text[at]) != lowered(wanted)) {
        last_hit = false;
        continue;
      }
      const bool word_start = at == 0 || text[at - 1] == ' ';
      score += 1 + (word_start ? 8 : 0) + (last_hit ? 4 : 0);
      found = last_hit = true;
    }
    if (!found) return -1;
  }
  return score;
}

void CommandList::handle_shortcuts() {
  for (const Command& command : commands_) {
    // Requested in every frame: ImGui grants a key only to an owner that requested it the frame
    // before. Whether a command is enabled may be slow to compute, so that comes after.
    if (command.chord == 0) continue;
    if (ImGui::Shortcut(command.chord, ImGuiInputFlags_RouteGlobal) && is_enabled(command)) {
      command.run();
    }
  }
}

void CommandList::draw_menu(const char* menu) const {
  for (const Command& command : commands_) {
    if (command.menu != menu) continue;
    const std::string keys = chord_text(command.chord);
    if (ImGui::MenuItem(command.name.c_str(), keys.empty() ? nullptr : keys.c_str(),
                        command.checked && command.checked(), is_enabled(command))) {
      command.run();
    }
  }
}

std::vector<size_t> CommandList::matches() const {
  std::vector<std::pair<int, size_t>> scored;
  for (size_t i = 0; i < commands_.size(); ++i) {
    const int score = fuzzy_score(query_, commands_[i].name);
    if (score >= 0 && is_enabled(commands_[i])) scored.emplace_back(-score, i);
  }
  std::ranges::stable_sort(scored, {}, &std::pair<int, size_t>::first);
  std::vector<size_t> found;
  for (const auto& [score, index] : scored) found.push_back(index);
  return found;
}

void CommandList::draw_palette() {
  if (palette_asked_) {
    palette_asked_ = false;
    query_[0] = '\0';
    picked_ = 0;
    ImGui::OpenPopup("Command palette");
  }
  const ImGuiViewport* screen = ImGui::GetMainViewport();
  const float em = ImGui::GetFontSize();
  ImGui::SetNextWindowPos(ImVec2(screen->GetCenter().x, screen->WorkPos.y + 3 * em),
                          ImGuiCond_Always, ImVec2(0.5f, 0.0f));
  ImGui::SetNextWindowSize(ImVec2(std::min(36 * em, screen->WorkSize.x * 0.9f), 0));
  if (!ImGui::BeginPopup("Command palette", ImGuiWindowFlags_NoMove)) return;
  if (ImGui::IsWindowAppearing()) ImGui::SetKeyboardFocusHere();
  ImGui::SetNextItemWidth(-1);
  const bool entered =
      ImGui::InputTextWithHint("##query", "type what you want to do", query_, sizeof query_,
                               ImGuiInputTextFlags_EnterReturnsTrue);
  if (ImGui::IsItemEdited()) picked_ = 0;
  const std::vector<size_t> found = matches();
  if (ImGui::IsKeyPressed(ImGuiKey_DownArrow) && picked_ + 1 < found.size()) ++picked_;
  if (ImGui::IsKeyPressed(ImGuiKey_UpArrow) && picked_ > 0) --picked_;
  std::function<void()> chosen;
  const size_t first = picked_ >= kMaxRows ? picked_ - kMaxRows + 1 : 0;
  for (size_t row = first; row < std::min(found.size(), first + kMaxRows); ++row) {
    const Command& command = commands_[found[row]];
    if (ImGui::Selectable(command.name.c_str(), row == picked_)) chosen = command.run;
    const std::string keys = chord_text(command.chord);
    if (keys.empty()) continue;
    ImGui::SameLine();
    ImGui::PushStyleColor(ImGuiCol_Text, ImGui::GetStyleColorVec4(ImGuiCol_TextDisabled));
    show_right(keys);
    ImGui::PopStyleColor();
  }
  if (found.empty()) ImGui::TextDisabled("nothing is called like that");
  if (entered && picked_ < found.size()) chosen = commands_[found[picked_]].run;
  if (chosen) ImGui::CloseCurrentPopup();
  ImGui::EndPopup();
  if (chosen) chosen();
}

void CommandList::draw_shortcuts(bool& open,
                                 const std::vector<std::pair<std::string, std::string>>& others) {
  if (!open) return;
  const float em = ImGui::GetFontSize();
  ImGui::SetNextWindowPos(ImGui::GetMainViewport()->GetCenter(), ImGuiCond_Appearing,
                          ImVec2(0.5f, 0.5f));
  if (ImGui::Begin("Shortcuts", &open,
                   ImGuiWindowFlags_AlwaysAutoResize | ImGuiWindowFlags_NoDocking |
                       ImGuiWindowFlags_NoCollapse | ImGuiWindowFlags_NoSavedSettings)) {
    const auto line = [&](const std::string& keys, const std::string& what) {
      ImGui::TableNextRow();
      ImGui::TableNextColumn();
      show_text(keys);
      ImGui::TableNextColumn();
      show_text(what);
    };
    if (ImGui::BeginTable("##keys", 2, ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_RowBg)) {
      ImGui::TableSetupColumn("keys", 0, 14 * em);
      for (const Command& command : commands_) {
        if (command.chord != 0) line(chord_text(command.chord), command.name);
      }
      for (const auto& [keys, what] : others) line(keys, what);
      ImGui::EndTable();
    }
    if (ImGui::IsKeyPressed(ImGuiKey_Escape)) open = false;
  }
  ImGui::End();
}

}  // namespace moonshard::viewer
