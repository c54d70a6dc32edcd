// Writes a run folder. Each file appears whole or not at all (atomic_file.h), so that the folder
// can be read at any moment and after any kill.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/records/reader.h"

namespace moonshard::records {

/// A point the sweep is going to run: what was asked for and its place in the seeds' naming.
struct PlannedPoint {
  std::string id;
  Json options;                 ///< effective options
  std::string file_name;        ///< e.g. "none_seq64_result.json", written beside sweep.json
  Json asked = Json::object();  ///< axis values in the words of the user, e.g. mode = "no_dp"
};

class RunFolderWriter {
 public:
  /// Makes results/run_YYYYMMDD_HHMMSS[_name] under root; a second one in the same second gets a
  /// suffix.
  static RunFolderWriter create(const std::filesystem::path& root, const std::string& name);
  /// Opens an existing folder to go on with it; sweeps away what dead writers left.
  static RunFolderWriter open(const std::filesystem::path& folder);
  /// For the process of one point, beside others at work: looks at sweep.json alone and sweeps
  /// nothing away. A sweep of a thousand points would else read a million results.
  static RunFolderWriter attach(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path point_folder(const std::string& id) const;

  void write_sweep(const std::string& name, const Json& request,
                   const std::vector<std::string>& axes, const std::vector<PlannedPoint>& points);
  void write_environment(const Json& environment);
  /// Makes the point's folder and its status word (running, ok, oom, failed, timeout, skipped,
  /// interrupted).
  void write_status(const std::string& id, const std::string& status);
  /// A point's record, and its copy under the seeds' file name where one is given.
  void write_result(const std::string& id, const Json& result);
  /// Forgets an earlier attempt's record, so that the next one cannot be taken for it.
  void remove_result(const std::string& id);
  /// index.csv: one line per point with status, axes and metrics; rebuilt from what lies in the
  /// folder.
  void write_index();
  /// The same after one point has changed: only that one is read again.
  void update_index(const std::string& id);
  void write_file(const std::string& relative_path, const std::string& bytes);

 private:
  explicit RunFolderWriter(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
  std::shared_ptr<RunIndex> index_;  ///< once it was read
};

/// Short stable hash (16 hex digits) of a flat option object, whatever the order of its keys.
std::string options_hash(const Json& options);

/// Now, as "2026-01-31T12:00:00Z".
std::string timestamp_utc();

}  // namespace moonshard::records
