// How swept options and their values are called in every panel: the words of the scripts' figures.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

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

/// The swept options that tell these points of a run apart, in the sweep's order. What all of them
/// share is left out; so is what already follows from the others (the number of layers of a named
/// model), except engine, model, batch and length, which a reader looks for unless each model has
/// its own. Where `over` are axes of a chart, all that makes other points is told, though it
/// may follow from the place on those; what only one engine reads makes no other point.
std::vector<std::string> telling_axes(const RunData& run, const std::vector<size_t>& points,
                                      const std::vector<std::string>& over = {});

/// The values of these axes in one line, e.g. "ghost, 16 tokens"; a single one stands alone where
/// `alone`. May be empty.
std::string words_of_axes(const RunData& run, size_t point, const std::vector<std::string>& axes,
                          bool alone);

/// The same of several points. Words that leave out usual values may come out alike: points that
/// differ in one of the axes are then told apart by it, "ghost, 16 tokens, wrap none".
std::vector<std::string> words_of_points(const RunData& run, const std::vector<size_t>& points,
                                         const std::vector<std::string>& axes, bool alone);

/// The values of all axes of a point but some, e.g. "ghost, 16 tokens"; may be empty.
std::string axis_words(const RunData& run, size_t point,
                       std::initializer_list<std::string_view> without = {});

}  // namespace moonshard::viewer
