// A choice of a few words in one line, each with a sentence about it under the mouse.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moonshard::viewer {

struct Choice {
  const char* text;
  std::string_view meaning;  ///< tooltip; may be empty
};

/// Goes on in the line of the widget before when `width` pixels more fit into it, else begins the
/// next line: a narrow panel keeps all of its controls. Groups stand further apart.
void continue_line(float width, bool new_group = false);

/// Radio buttons for `value`, an index into choices; true when the user took another. Goes on in
/// the line of the widget before where there is room, else in the next.
bool choose(const char* id, std::span<const Choice> choices, int& value);

/// A check box of the same kind.
bool choose_whether(const Choice& choice, bool& value);

/// A combo box of names, with their definitions under the mouse; true when another was chosen.
/// `shown` says how a name is written, if not as it stands.
bool pick_name(const char* label, std::string& picked, const std::vector<std::string>& names,
               const std::function<std::string(const std::string&)>& shown = {});

/// A button at the right end of the line of the widget before; without one, or without room, in a
/// line of its own.
bool button_at_right(const char* label);

/// A small question mark in the same line, with a text under the mouse.
void show_help(std::string_view text);

}  // namespace moonshard::viewer
