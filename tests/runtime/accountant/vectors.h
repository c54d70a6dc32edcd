// Figures of other accountants: tests/data/accountant.json names source and tolerance of each.
#pragma once

#include <string>
#include <vector>

#include "runtime/accountant/gaussian.h"
#include "runtime/base/json.h"

namespace moonshard::accountant {

inline const Json& all_figures() {
  static const Json list = read_json_file(MOONSHARD_SOURCE_DIR "/tests/data/accountant.json");
  return list;
}

/// Those of one method whose source has the word in it.
inline std::vector<Json> figures(const std::string& method, const std::string& source = "") {
  std::vector<Json> list;
  for (const Json& row : all_figures()) {
    if (row["method"] == method &&
        row["source"].get<std::string>().find(source) != std::string::npos)
      list.push_back(row);
  }
  return list;
}

inline std::vector<GaussianPhase> phases_of(const Json& row) {
  return {{row["q"].get<double>(), row["sigma"].get<double>(), row["steps"].get<double>()}};
}

/// The row's own tolerance, of its epsilon or of another key.
inline double tolerance_of(const Json& row, const char* key = "epsilon") {
  if (row.contains("tol_abs")) return row["tol_abs"].get<double>();
  return row["tol_rel"].get<double>() * row[key].get<double>();
}

}  // namespace moonshard::accountant
