// A table of texts for the clipboard: aligned columns or Markdown. CSV is records/csv.
#pragma once

#include <string>
#include <vector>

namespace moonshard::viewer {

using TextRow = std::vector<std::string>;

/// Columns aligned with spaces; numbers to the right. Line ends inside cells become spaces.
std::string table_text(const TextRow& columns, const std::vector<TextRow>& rows);

/// A pipe table; '|' and line ends in cells are escaped.
std::string table_markdown(const TextRow& columns, const std::vector<TextRow>& rows);

}  // namespace moonshard::viewer
