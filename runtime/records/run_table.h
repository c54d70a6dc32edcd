// A run folder without its records: what was planned, and of each point what tables need of it. In
// memory a point is some hundred bytes; everything else is read when it is asked for.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/records/point_index.h"
#include "runtime/records/reader.h"
#include "runtime/records/sweep_file.h"

namespace moonshard::records {

class RunTable {
 public:
  /// Throws IoError when it is not a run folder at all (no readable sweep.json).
  explicit RunTable(const std::filesystem::path& folder);
  RunTable(const RunTable&) = delete;
  RunTable& operator=(const RunTable&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const SweepHead& head() const { return head_; }
  size_t size() const { return points_.size(); }
  const std::string& id(size_t point) const { return points_[point].id; }
  std::optional<size_t> find(const std::string& id) const;

  /// As it stands in sweep.json, with all of its options.
  PlannedPoint planned(size_t point) const;
  /// The point as it is now, without its record (PointRecord::result stays empty).
  PointRecord summary(size_t point) const;
  /// Its status alone, and whether it has a record.
  std::pair<std::string, bool> status(size_t point) const;

  /// Adds a record that is final to the folder's index.
  void add_to_index(const PointRecord& record);
  /// Does the same for every point whose record the index does not know.
  void complete_index();
  /// index.csv: one row per point with status, axes and metrics; handed over piece by piece.
  void write_csv(const std::function<void(const std::string&)>& write) const;

  /// What is wrong with the record of a point as a result of that point, in words that begin with
  /// its file; "" when all is well or there is none. Records that the index knows are only hashed.
  std::string altered(size_t point) const;

 private:
  struct Planned {
    std::string id, file, own, asked;  ///< the last two: JSON text, "" for an empty object
  };
  std::filesystem::path path_;
  std::deque<Planned> points_;  ///< which stay where they are: places_ points into them
  std::unordered_map<std::string_view, uint32_t> places_;
  SweepHead head_;  ///< after the points, which are read with it
  PointIndex index_;
};

/// Names of options in which a point's record is not what the sweep planned, as "options.x:
/// expected 1 as in sweep.json, got 2". Only the axes and, with `all`, every option that both have.
/// A longer warm-up on a GPU is as planned.
std::vector<std::string> option_differences(const std::vector<std::string>& axes,
                                            const Json& planned, const Json& had, bool all);

}  // namespace moonshard::records
