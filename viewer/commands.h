// What can be done by name: one list feeds the menus, the shortcuts, their page (F1) and the
// command palette (Ctrl+P), so that all of them are complete.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <imgui.h>

namespace moonshard::viewer {

struct Command {
  std::string name;         ///< "Reload the folders"
  std::string menu;         ///< menu it stands in: File, View, Points, Help; empty: palette only
  ImGuiKeyChord chord = 0;  ///< 0: no shortcut
  std::function<void()> run;
  std::function<bool()> enabled = {};  ///< absent: always
  std::function<bool()> checked = {};  ///< for what is on or off
};

class CommandList {
 public:
  void add(Command command) { commands_.push_back(std::move(command)); }

  /// Runs the command of a pressed key.
  void handle_shortcuts();
  /// The items of one menu, between BeginMenu and EndMenu.
  void draw_menu(const char* menu) const;
  /// Opens the palette; draw_palette shows it while it is open.
  void open_palette() { palette_asked_ = true; }
  void draw_palette();
  /// The page of shortcuts; other lines (mouse, keys of single panels) come from the caller.
  void draw_shortcuts(bool& open, const std::vector<std::pair<std::string, std::string>>& others);

 private:
  std::vector<size_t> matches() const;

  std::vector<Command> commands_;
  char query_[128] = "";
  size_t picked_ = 0;
  bool palette_asked_ = false;
};

/// How well the letters of a query are found in a text, in order, whatever the case: higher is
/// better, negative means not at all.
int fuzzy_score(std::string_view query, std::string_view text);

}  // namespace moonshard::viewer
