// Baselines as a user picks them, and what each point costs beyond its own. The comparison itself
// is runtime/analysis/overhead.h, which Lua's scripts use, too.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/analysis/overhead.h"
#include "runtime/analysis/rows.h"
#include "viewer/data/run_data.h"

namespace moonshard::viewer {

struct Baseline {
  enum class Kind {
    None,
    Point,
    Axis,
    Sweeps  ///< each run's own: what its sweep names, else plain training
  };
  Kind kind = Kind::None;
  std::string run, point;   ///< Point: the run's path as it was opened, and the point's id
  std::string axis, value;  ///< Axis: e.g. mode = none, sharding = zero2, seq_length = 512
  bool operator==(const Baseline&) const = default;
};

using PointPlace = analysis::Place;
using analysis::Overhead;

/// The figures of an overhead that tables and charts show.
struct OverheadFigure {
  const char* key;     ///< "time_ratio"
  const char* label;   ///< on an axis
  const char* column;  ///< of the run table, with its unit
  double factor;       ///< in the run table: shown = stored * factor
  double Overhead::*value;
};
inline constexpr OverheadFigure kOverheadFigures[] = {
    {"time_ratio", "time against the baseline", "time x", 1, &Overhead::time_ratio},
    {"memory_percent", "memory above the baseline in %", "memory +%", 1, &Overhead::memory_percent},
    {"memory_bytes", "memory above the baseline", "memory +MiB", 1.0 / (1 << 20),
     &Overhead::memory_bytes},
    {"throughput_ratio", "throughput against the baseline", "throughput x", 1,
     &Overhead::throughput_ratio}};
/// The figure of that key; null when there is none.
const OverheadFigure* find_overhead_figure(std::string_view key);

/// The point with that id in the run of that path.
std::optional<PointPlace> find_point(const std::vector<const RunData*>& runs,
                                     const std::string& path, const std::string& id);

/// For each run, for each of its points.
analysis::Overheads overheads(const std::vector<const RunData*>& runs, const Baseline& baseline);

/// What to begin with: the baseline that the sweeps named, or each its own where they name
/// different ones; else plain training, where the runs have it beside other modes; else, of a
/// single run whose points differ in names and switches alone, its first finished point; else none.
Baseline default_baseline(const std::vector<const RunData*>& runs);

/// Every value of every swept option, as baselines to pick from.
std::vector<Baseline> baseline_choices(const std::vector<const RunData*>& runs);

/// "mode = none", "point 4f2a… of night_sweep", "no baseline".
std::string describe(const Baseline& baseline, const std::vector<const RunData*>& runs);

// Runs as the rows that runtime/analysis reads, in analysis_rows.cpp.

records::Metrics analysis_metrics(const RunData& run, size_t point);

/// One table per run, without details: the values of everything that is swept in any of them, and
/// of `option`. Modes are engines' own names; labels are the points' ids.
std::vector<analysis::Table> analysis_tables(const std::vector<const RunData*>& runs,
                                             const std::string& option);

}  // namespace moonshard::viewer
