// index.csv in memory: one row per point with status, axes and metrics. A sweep's parent keeps it,
// so that a point that ends costs one row, not a look at all results.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/records/reader.h"

namespace moonshard::records {

class RunIndex {
 public:
  explicit RunIndex(const RunFolder& run);
  /// Takes over what a point has become. One that the folder does not plan is added at the end.
  void update(const PointRecord& point);
  std::string csv() const;

 private:
  struct Row {
    std::string status, error;
    std::vector<std::string> axis_cells;
    std::map<std::string, std::string> metrics;
  };
  std::vector<std::string> axes_, ids_;
  std::map<std::string, Row> rows_;
  std::set<std::string> metric_names_;
};

}  // namespace moonshard::records
