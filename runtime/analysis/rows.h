// What analyses read: the points of a sweep as plain rows, whoever holds them (Lua tables, the
// viewer's columns). Figures that a record lacks are NaN; nothing here reads files.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/records/schema.h"

namespace moonshard::analysis {

inline constexpr double kMiB = 1048576.0;

/// The value of an option: none, a truth value, a number or a text.
using Value = std::variant<std::monostate, bool, double, std::string>;

/// As Lua writes it: numbers with 14 digits at most, "true", "false", "nil" for none.
std::string text_of(const Value& value);

/// True when `value` is what somebody asked for. Words count for what they mean: "512" is the
/// number, "yes" is true. No value is never meant.
bool is_asked(const Value& value, const Value& asked);

struct Row {
  std::string label;  ///< what reports call the point
  std::string status;
  std::string mode;                ///< its engine
  std::vector<Value> values;       ///< of the table's options
  std::vector<std::string> shown;  ///< of the table's axes, in the words of the sweep's script
  records::Metrics metrics;
  std::shared_ptr<const records::Result> detail;  ///< the whole record; null: not read

  bool ok() const { return status == "ok"; }
};

/// Peak memory; the profiling suites' own files have it in MiB only.
inline double peak_bytes(const records::Metrics& metrics) {
  return std::isnan(metrics.peak_memory_bytes) ? metrics.peak_memory_mb * kMiB
                                               : metrics.peak_memory_bytes;
}

/// The points of one run folder.
struct Table {
  std::vector<std::string> axes;     ///< swept options, in grid order
  std::vector<std::string> options;  ///< names of the rows' values; the axes are among them
  std::vector<Row> rows;

  /// Value of a row's option; none where the table has no such option.
  const Value& at(size_t row, std::string_view option) const;
};

/// Each name once: those of `known` in their order, then the others as they came.
std::vector<std::string> in_order(const std::vector<std::string>& names,
                                  const std::vector<std::string>& known);

/// Owners of memory from the foot of a stack up; what nobody claims ("rest") comes last.
std::vector<std::string> owners_in_order(const std::vector<std::string>& names);

/// Phases in the order of a step.
std::vector<std::string> phases_in_order(const std::vector<std::string>& names);

// Summary of a list of samples. Every sample is kept in the records; these figures are derived.

/// Quantile by linear interpolation between order statistics (the "type 7" rule). q in [0, 1].
double quantile(std::vector<double> samples, double q);

/// A count of 0 and zeros for no samples.
records::Statistics summarize(const std::vector<double>& samples);

/// What of a step can grow with a size: each quantity's name, unit, and how it is read from a
/// point.
struct Quantity {
  const char *name, *unit;
  bool needs_detail;  ///< else the metrics are enough
  /// NaN where it was not measured, or not read: `detail` may be null.
  double (*read)(const records::Metrics& metrics, const records::Result* detail);
};

const std::vector<Quantity>& quantities();
/// Null for a name that there is not.
const Quantity* find_quantity(std::string_view name);

/// Time of all per-sample norms in the watched step: the sum over layers where they were timed.
double norms_ms(const records::Result* detail);

/// Median of a phase; NaN where it was not timed.
double phase_median_ms(const records::Result* detail, std::string_view phase);

}  // namespace moonshard::analysis
