// Writes a run folder. Each file appears whole or not at all (base/files.h), so that the folder can
// be read at any moment and after any kill. Folders may come from others: nothing is written
// through a link that leads out.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/records/run_table.h"

namespace moonshard::records {

class RunFolderWriter {
 public:
  /// Makes results/run_YYYYMMDD_HHMMSS[_name] under root; a second one in the same second gets a
  /// suffix.
  static RunFolderWriter create(const std::filesystem::path& root, const std::string& name);
  /// Opens an existing folder to go on with it; sweeps away what dead writers left.
  static RunFolderWriter open(const std::filesystem::path& folder);
  /// For the process of one point, beside others at work: looks at sweep.json alone and sweeps
  /// nothing away.
  static RunFolderWriter attach(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path point_folder(const std::string& id) const;

  /// The point's folder, which is made where it is missing.
  std::filesystem::path make_point_folder(const std::string& id) const;

  /// Freezes a grid in sweep.json; what all points share is found and written once.
  void write_sweep(const std::string& name, const Json& request,
                   const std::vector<std::string>& axes, const std::vector<PlannedPoint>& points);
  /// The same for very many points, part by part: what all share is in the head, and points have
  /// only their own options.
  void begin_sweep(SweepHead head);
  void add_points(const std::vector<PlannedPoint>& points);
  void end_sweep();
  void write_environment(const Json& environment);
  /// Makes the point's folder and its status word (running, ok, oom, failed, timeout, skipped,
  /// interrupted).
  void write_status(const std::string& id, const std::string& status);
  /// A point's record, with its digest.
  void write_result(const std::string& id, const Json& result);
  /// Forgets an earlier attempt's record, so that the next one cannot be taken for it.
  void remove_result(const std::string& id);
  /// index.jsonl and index.csv: one line per point; completed from what lies in the folder.
  void write_index();
  /// The same after the record of one point is final: index.jsonl gets a line. index.csv is made
  /// anew as often as a fiftieth of the time allows, and always by write_index.
  void update_index(const std::string& id);
  void write_file(const std::string& relative_path, const std::string& bytes);

 private:
  explicit RunFolderWriter(std::filesystem::path path) : path_(std::move(path)) {}
  RunTable& table();
  void write_csv();
  std::filesystem::path inside(const std::string& relative_path) const;

  std::filesystem::path path_;
  std::shared_ptr<RunTable> table_;  ///< once it was read
  std::shared_ptr<SweepFileWriter> sweep_;
  double csv_seconds_ = 0, csv_written_ = 0;  ///< what index.csv took, and when that was
};

/// Short stable hash (16 hex digits) of a flat option object, whatever the order of its keys.
std::string options_hash(const Json& options);

/// Now, as "2026-01-31T12:00:00Z".
std::string timestamp_utc();

}  // namespace moonshard::records
