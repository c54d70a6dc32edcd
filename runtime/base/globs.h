// Lists of globs, as options have them: "*.norm.*, model.layers.0.*".
#pragma once

#include <string>
#include <vector>

namespace moonshard {

/// Without the blanks around them; empty ones are left out.
std::vector<std::string> globs_of(const std::string& list);

/// Whether one of them matches the whole of `text`.
bool matches_any(const std::vector<std::string>& globs, const std::string& text);

}  // namespace moonshard
