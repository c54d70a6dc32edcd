#include "viewer/data/table_text.h"

#include <algorithm>
#include <string_view>

namespace moonshard::viewer {
namespace {

// What a terminal or an editor shows in one place: UTF-8 bytes that continue a character count not.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

bool is_number(std::string_view text) {
  const size_t first = text.find_first_of("0123456789");
  if (first == std::string_view::npos || first > 2) return false;
  return text.find_first_not_of("0123456789.,+-eE% x") == std::string_view::npos;
}

std::string one_line(std::string_view text) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    line += static_cast<unsigned char>(text[i]) < ' ' ? ' ' : text[i];
  }
  return line;
}

struct Layout {
  std::vector<TextRow> lines;  ///< the titles, then the rows, each as long as the titles
  std::vector<size_t> widths;
  std::vector<bool> right;
};

template <class Cell>
Layout lay_out(const TextRow& columns, const std::vector<TextRow>& rows, Cell&& cell) {
  Layout layout;
  const auto add = [&](const TextRow& row) {
    TextRow line(columns.size());
    for (size_t c = 0; c < columns.size() && c < row.size(); ++c) line[c] = cell(row[c]);
    layout.lines.push_back(std::move(line));
  };
  add(columns);
  for (const TextRow& row : rows) add(row);
  for (size_t c = 0; c < columns.size(); ++c) {
    size_t width = 0, numbers = 0, texts = 0;
    for (size_t r = 0; r < layout.lines.size(); ++r) {
      const std::string& text = layout.lines[r][c];
      width = std::max(width, width_of(text));
      if (r > 0 && !text.empty()) ++(is_number(text) ? numbers : texts);
    }
    layout.widths.push_back(width);
    layout.right.push_back(numbers > 0 && texts == 0);
  }
  return layout;
}

std::string padded(const std::string& text, size_t width, bool right) {
  const std::string spaces(width - std::min(width, width_of(text)), ' ');
  return right ? spaces + text : text + spaces;
}

}  // namespace

std::string table_text(const TextRow& columns, const std::vector<TextRow>& rows) {
  const Layout layout = lay_out(columns, rows, one_line);
  std::string text;
  for (size_t r = 0; r < layout.lines.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < columns.size(); ++c)
      line += (c > 0 ? "  " : "") + padded(layout.lines[r][c], layout.widths[c], layout.right[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
    if (r > 0) continue;
    for (size_t c = 0; c < columns.size(); ++c)
      text += (c > 0 ? "  " : "") + std::string(layout.widths[c], '-');
    text += "\n";
  }
  return text;
}

std::string table_markdown(const TextRow& columns, const std::vector<TextRow>& rows) {
  const Layout layout = lay_out(columns, rows, [](const std::string& cell) {
    std::string text;
    for (const char c : one_line(cell)) {
      if (c == '|' || c == '\\') text += '\\';
      text += c;
    }
    return text;
  });
  std::string text;
  for (size_t r = 0; r < layout.lines.size(); ++r) {
    text += "|";
    for (size_t c = 0; c < columns.size(); ++c)
      text += " " + padded(layout.lines[r][c], layout.widths[c], layout.right[c]) + " |";
    text += "\n";
    if (r > 0) continue;
    text += "|";
    for (size_t c = 0; c < columns.size(); ++c) {
      // At least three dashes, one of which may be the colon of a column set to the right.
      const std::string dashes(std::max<size_t>(layout.widths[c], 3) - layout.right[c], '-');
      text += " " + dashes + (layout.right[c] ? ": |" : " |");
    }
    text += "\n";
  }
  return text;
}

}  // namespace moonshard::viewer
