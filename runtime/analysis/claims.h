// Claims about results as checks: whether a claim holds, and the figures that say so.
#pragma once

#include <optional>

#include "runtime/analysis/rows.h"

namespace moonshard::analysis {

/// "More" and "less" mean at least this share: a few bytes, or a hundredth of a millisecond, are no
/// difference.
inline constexpr double kNoticeable = 0.005;

struct Claim {
  std::optional<bool> holds;  ///< nothing: not measured
  std::string figures;        ///< in words
};

/// Either may be absent.
struct Bounds {
  std::optional<double> least, most;
  bool contain(double low, double high) const {
    return (!least || low >= *least) && (!most || high <= *most);
  }
};

/// Two good rows that differ in one axis only.
struct Pair {
  size_t of, to;
  std::string at;  ///< what they share: "seq_length 64"
};
/// All pairs with the value `of` against the value `to`, in the order of the table.
std::vector<Pair> pairs_on_axis(const Table& table, const std::string& axis, const Value& of,
                                const Value& to);

/// A figure of both rows of a pair; NaN where one lacks it.
struct PairFigures {
  double of = NAN, to = NAN;
  std::string at;
};

struct RatioClaim {
  std::string of, to;      ///< in the claim's words
  Bounds bounds;           ///< of the ratio; a bound of 1 means noticeably above or below it
  bool only_last = false;  ///< only the last measured pair counts, as for long sequences
};
Claim judge_ratio(const RatioClaim& claim, const std::vector<PairFigures>& pairs);

/// Whether all figures lie within bounds; those that are NaN were not measured.
Claim judge_bound(const std::vector<double>& figures, const Bounds& bounds,
                  const std::string& unit);

struct GrowthClaim {
  std::string axis, quantity;
  std::string mode;                   ///< empty: of any
  std::vector<std::string> verdicts;  ///< that confirm it
};
Claim judge_growth(const GrowthClaim& claim, const Table& table);

// Time against memory: which points are worth choosing.

/// What a choice costs, in any units as long as all are in the same. NaN: not known.
struct Cost {
  double time = NAN, memory = NAN;
};

/// Marks the Pareto front: choices that no other beats, being at most as slow and as large and
/// better in one of the two. One whose cost is not known is not efficient.
std::vector<bool> efficient(const std::vector<Cost>& costs);

/// Engines with their costs as multiples of plain training's.
struct NamedCost {
  std::string name;
  Cost cost;
};
/// Whether `expected` has the smallest product of time and memory. Not measured where a cost is
/// missing.
Claim judge_tradeoff(const std::string& expected, const std::vector<NamedCost>& choices);

}  // namespace moonshard::analysis
