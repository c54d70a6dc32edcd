// index.jsonl of a run folder (records/point_index.h): what the table needs of each record, in one
// file. Reading it saves opening 100,000 records.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/input/open_file.h"
#include "viewer/readers/point_summary.h"

namespace moonshard::viewer {

class IndexFile {
 public:
  /// Empty where there is none that can be read: the records say it all, only slower.
  explicit IndexFile(const InsideFolder& inside);

  /// Fills a point from its line. False where there is none, or where the record has changed since.
  bool read(const InsideFolder& inside, const std::string& id, PointSummary& point) const;

 private:
  std::string text_;
  std::unordered_map<std::string_view, std::string_view> lines_;  ///< by id; the last counts
};

}  // namespace moonshard::viewer
