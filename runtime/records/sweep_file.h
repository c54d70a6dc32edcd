// sweep.json: the frozen grid of a run folder. Options that all points share stand in it once
// ("common"), each point has a line with its own; so 100,000 points are some 10 MB. The older
// layout, in which every point has all of its options, is read as well.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/files.h"
#include "runtime/base/json.h"
#include "runtime/base/sha256.h"
#include "runtime/records/digest.h"

namespace moonshard::records {

/// Layout of sweep.json; every other file of a run folder has kSchemaVersion.
inline constexpr int kSweepVersion = 2;
inline constexpr size_t kMaxPointsPerFolder = 100'000;
/// Of a folder, that are told: a hostile one could have any number.
inline constexpr size_t kMaxProblems = 100;
/// What readers take: a writer must not make a file that cannot be read again.
inline constexpr JsonLimits kSweepLimits{256u << 20, 256, 16u << 20, 10'000};

/// Throws IoError: what is there instead of a run folder with sweep.json.
[[noreturn]] void refuse_folder_without_sweep(const std::filesystem::path& folder);

/// A point the sweep is going to run: what was asked for and its place in the seeds' naming.
struct PlannedPoint {
  std::string id;
  Json options;                 ///< effective options, or those beyond the common ones
  std::string file_name;        ///< e.g. "none_seq64_result.json", written beside sweep.json
  Json asked = Json::object();  ///< axis values in the words of the user, where they differ
};

/// All of sweep.json but the points.
struct SweepHead {
  std::string name, created;  ///< ISO time, as the writer's clock said
  std::vector<std::string> axes;
  Json request = Json::object();  ///< what the sweep was asked for: grid, baseline, …
  Json common = Json::object();   ///< options that all points share
  Digest digest = Digest::None;
  std::vector<std::string> problems;
};

/// Reads path/sweep.json and hands over its points, in the sweep's order, with their own options.
/// Throws IoError when there is none that can be read, or it leads out of the folder.
SweepHead read_sweep_file(const std::filesystem::path& folder,
                          const std::function<void(PlannedPoint&&)>& take);

/// The options of a point: the common ones, and its own in their place.
Json all_options(const Json& common, const Json& own);

/// Writes a sweep.json point by point; without finish() the old one stays.
class SweepFileWriter {
 public:
  SweepFileWriter(const std::filesystem::path& folder, const SweepHead& head);
  void add(const PlannedPoint& point);
  void finish();

 private:
  void write(const std::string& text);

  StagedFile file_;
  Sha256 hash_;
  std::string waiting_;  ///< text that is not in the file yet
  size_t points_ = 0;
};

}  // namespace moonshard::records
