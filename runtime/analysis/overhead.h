// What each point costs beyond a baseline: memory, time, throughput.
//
// Note: the baseline's own row. A point that is its own baseline is compared like any other: 0
// bytes and 0 % more, ratios of 1. It is marked (is_baseline), so that nobody has to guess from the
// zeros; Lua's tables and the viewer show it the same way.
#pragma once

#include <optional>

#include "runtime/analysis/rows.h"

namespace moonshard::analysis {

struct Place {
  size_t run = 0, point = 0;  ///< places in the list of tables and in its rows
  bool operator==(const Place&) const = default;
};

/// NaN: not known.
struct Overhead {
  std::optional<Place> partner;   ///< the point it belongs to, whatever became of that
  std::optional<Place> baseline;  ///< the partner, where both have a result
  bool is_baseline = false;       ///< it is its own partner
  std::string why_none;           ///< in words, where there is no baseline
  double memory_bytes = NAN, memory_percent = NAN;
  double time_ratio = NAN;        ///< above 1: slower
  double throughput_ratio = NAN;  ///< above 1: more tokens (or samples) per second

  double time_percent() const { return 100 * (time_ratio - 1); }
};

/// For each table, for each of its rows.
using Overheads = std::vector<std::vector<Overhead>>;

struct AxisBaseline {
  std::string axis;  ///< e.g. mode, sharding, seq_length
  Value value;       ///< modes are compared as they stand: callers write both as engines' own names
  std::string shown;  ///< the value in the user's words ("no_dp")
};

/// A point's partner is the first point of its table that has the axis's value and the same other
/// axes; where its table has none, that of another table which agrees in what is swept in either.
/// Who finds none so may take one that was measured otherwise (profile, iters, warmup,
/// memory_history) or, between engines, has another value of an option that only one engine reads
/// (memory_budget_mb, tile_size, flash_algorithm).
Overheads overheads_on_axis(const std::vector<Table>& tables, const AxisBaseline& baseline);

/// One point for all. Without one, `why_none` says why.
Overheads overheads_against(const std::vector<Table>& tables, const std::optional<Place>& baseline,
                            const std::string& why_none);

}  // namespace moonshard::analysis
