// How swept options and their values are called in every panel: the words of the scripts' figures.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "viewer/data/run_data.h"

namespace moonshard::viewer {

/// A name of the records as it is shown: "optimizer_state" -> "optimizer state".
std::string shown_name(std::string_view name);

/// "sequence length" for seq_length; other options by their own name.
std::string axis_title(const std::string& axis);
/// "tokens" for seq_length; mostly empty.
std::string axis_unit(const std::string& axis);

/// A value as part of a point's name: "16 tokens", "batch 4", "ghost"; empty for defaults
/// (none, a switch that is off). Alone, with its axis beside it, only the value: "16".
std::string axis_word(const RunData& run, const std::string& axis, const Value& value, bool alone);

/// The values of all axes of a point but some, e.g. "ghost, 16 tokens"; may be empty.
std::string axis_words(const RunData& run, size_t point,
                       std::initializer_list<std::string_view> without = {});

}  // namespace moonshard::viewer
