// index.jsonl: one line for each record of a run folder, added when the record is final, with what
// tables need of it. A line counts as long as the record has the size and the time noted there;
// of several lines of a point the last counts. So a folder of 100,000 points is opened by reading
// one file, and a point that ends costs one line. All of it can be made again from the records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/json.h"

namespace moonshard::records {

/// Size and time of a record's file, which change with it.
struct RecordStamp {
  int64_t bytes = -1, seconds = -1, nanoseconds = -1;
  /// Archives keep times in whole seconds.
  bool fits(const RecordStamp& file) const {
    return bytes == file.bytes && seconds == file.seconds &&
           (nanoseconds == file.nanoseconds || file.nanoseconds == 0);
  }
};

struct IndexEntry {
  std::string id, status, error;
  std::string digest;             ///< the record's own; may be empty
  Json options = Json::object();  ///< that are not as planned; null: it has none of that name
  Json metrics = Json::object();
  std::vector<std::string> own_metrics;
};

class PointIndex {
 public:
  /// Reads the lines of a folder. What is no line of an index is passed over.
  explicit PointIndex(std::filesystem::path folder);

  /// The entry of a point, unless its record has changed since.
  std::optional<IndexEntry> find(const std::string& id) const;
  /// The same, only the status word: nothing is read.
  std::optional<std::string> status_of(const std::string& id) const;
  /// Adds a line, with size and time of the record as it is now.
  void add(IndexEntry entry);

 private:
  struct Place {
    uint64_t begin = 0;
    uint32_t length = 0;
    RecordStamp stamp;
    std::string status;
  };
  bool is_current(const std::string& id, const Place& place) const;
  void take_line(std::string_view line, uint64_t begin);

  std::filesystem::path folder_, file_;
  std::unordered_map<std::string, Place> places_;
};

}  // namespace moonshard::records
