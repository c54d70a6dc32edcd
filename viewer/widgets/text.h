// Small pieces of text that several panels draw. Text goes to the screen as it stands: no format
// strings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "viewer/context.h"

namespace moonshard::viewer {

/// One or more lines, cleaned by the caller.
void show_text(std::string_view text);
void show_text(std::string_view text, ImU32 color);
/// The same, wrapped at the window's edge.
void show_wrapped(std::string_view text, ImU32 color);
void show_bold(std::string_view text, const UiStyle& style);
/// Right-aligned in the rest of the current table cell.
void show_right(std::string_view text);

/// The text, or its beginning and end with "..." between them when it is wider than max_width:
/// names that begin alike differ at their ends.
std::string shorten_middle(const std::string& text, float max_width);

/// Of a list of file names what tells one from the others: "rank1" of "trace.rank1.json.gz" beside
/// "trace.rank0.json.gz". Whole words between '.', '_', '-' and '/'; the name itself where there is
/// no other, or nothing would be left.
std::string telling_part(const std::string& name, const std::vector<std::string>& names);

/// The head of a table's column, over figures at the right end as they are.
void show_header(const char* label, bool right);

/// A status word with a dot of its colour before it.
void show_status(std::string_view status, const UiStyle& style);

/// A tooltip of wrapped text; call it when the item before is hovered.
void show_tooltip(std::string_view text);
/// The tooltip of the item before, while it is hovered; none for an empty text.
void explain_item(std::string_view text);

/// Calls draw(i) for those of `count` rows of the current table or window that are in sight. Rows
/// are as high as the first one, or as said.
template <class Draw>
void draw_rows_in_sight(size_t count, const Draw& draw, float height = -1) {
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(count), height);
  while (clipper.Step()) {
    for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) draw(static_cast<size_t>(i));
  }
}

/// Fills an empty panel: what is missing, and below what to do next.
void show_empty_state(std::string_view what, std::string_view next, const UiStyle& style);

}  // namespace moonshard::viewer
