// The run table's filter: words that any identifying cell contains, and comparisons of options and
// metrics, joined by and, or, not and parentheses. Terms that stand side by side mean and.
//   ghost 1024
//   mode = ghost* and peak_memory_bytes < 10GiB and not status = oom
//   has(epsilon) or (seq_length >= 4k run = night*)
// Text is compared without regard to case; * and ? are wildcards; quotes make one text of several
// words. A number may have a unit: B KiB MiB GiB TiB KB MB GB, us ms s, k M G for counts; it is
// turned into the unit that the key's name ends in.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "viewer/data/run_data.h"

namespace moonshard::viewer {

/// What a filter may name, of all open runs.
struct FilterKeys {
  std::vector<std::string> options, metrics;
  std::vector<std::string> axes;  ///< swept options: where plain words look
};
FilterKeys filter_keys(const std::vector<const RunData*>& runs);

struct FilterNode {
  enum class Kind : uint8_t { And, Or, Not, Word, Compare, Has };
  enum class Field : uint8_t { Option, Metric, Status, Run, Id, Error };
  enum class Relation : uint8_t { Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual };
  Kind kind = Kind::Word;
  Field field = Field::Option;
  Relation relation = Relation::Equal;
  std::string key = {};
  std::string text = {};       ///< the value as it was written, in lower case; may have wildcards
  double number = NAN;         ///< the value in the key's own unit; NaN: it is not a number
  size_t left = 0, right = 0;  ///< And, Or: both; Not: left; places in Filter::nodes
};

/// A parsed filter. Without nodes it takes every point.
struct Filter {
  std::string source;
  std::vector<FilterNode> nodes;  ///< the last is the root
  std::vector<std::string> axes;
};

struct FilterError {
  std::string message;
  size_t begin = 0, end = 0;  ///< which bytes of the filter it is about
};

struct ParsedFilter {
  Filter filter;
  std::optional<FilterError> error;  ///< then the filter takes every point
};
ParsedFilter parse_filter(std::string_view text, const FilterKeys& keys);

/// A filter with its keys looked up in one run. Both must outlive it.
class FilterOnRun {
 public:
  FilterOnRun(const Filter& filter, const RunData& run);
  bool matches(size_t point) const;

 private:
  struct Place {
    const ValueTable* table = nullptr;  ///< none: no point of this run has the key
    size_t column = 0;
    std::string pattern;
    std::vector<bool> texts;  ///< which of the run's texts match it
    bool run_name = false;    ///< the run's name matches it
    bool in_numbers = false;  ///< it may match the digits of a number
  };
  bool matches(size_t node, size_t point) const;
  bool compare(const FilterNode& node, const Place& place, size_t point) const;
  bool equals(const FilterNode& node, const Place& place, size_t point) const;
  bool has_word(const Place& place, size_t point) const;

  const Filter& filter_;
  const RunData& run_;
  std::vector<Place> places_;         ///< one for each node
  std::vector<size_t> axis_columns_;  ///< of this run's options
};

/// The same filter as the body of a Lua function of `point` (runs:select takes one).
std::string to_lua(const Filter& filter);

/// A Lua string literal: printable characters stay, others become numeric escapes.
std::string lua_text(std::string_view text);

/// Whether all of the text matches a pattern with * and ?; both in any case.
bool matches_wildcards(std::string_view text, std::string_view pattern);

}  // namespace moonshard::viewer
