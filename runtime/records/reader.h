// Reads a run folder, also while it is being written and whoever wrote it. A damaged point becomes
// a point with status "unreadable" and the reason; it never hides the others.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/json.h"

namespace moonshard::records {

/// One point of a sweep. Options and metrics are flat objects of numbers, strings and booleans.
struct PointRecord {
  std::string id;  ///< hash of the point's effective options; the name of its folder
  std::string
      status;  ///< planned, running, ok, oom, failed, timeout, skipped, interrupted, unreadable
  std::string error;  ///< why, when the status is not ok
  Json options =
      Json::object();  ///< effective options; before a point ran, what the sweep asked for
  Json metrics = Json::object();         ///< avg_time_ms, peak_memory_bytes, final_loss, …
  Json result = Json::object();          ///< the whole result.json
  std::vector<std::string> own_metrics;  ///< names of metrics that a script's function gave
  bool has_record = false;               ///< there is a result.json with a status
  std::string digest_text;               ///< the digest that it carries
  std::string problem;                   ///< what could not be read of it, or was changed
};

struct RunFolder {
  std::filesystem::path path;
  std::string name;
  std::string created;                ///< ISO time, as the writer's clock said
  std::vector<std::string> axes;      ///< swept option names, in grid order
  Json request = Json::object();      ///< what the sweep was asked for: grid, baseline, …
  Json environment = Json::object();  ///< env.json
  std::vector<PointRecord> points;    ///< in the sweep's order
  std::vector<std::string> plots;     ///< file names of visualizations/*.plot.json
  std::vector<std::string> problems;  ///< what could not be read, for the reader's eyes
};

/// Loads a folder. Throws IoError only when it is not a run folder at all (no readable sweep.json).
/// Links that lead out of the folder are not followed.
RunFolder load_run_folder(const std::filesystem::path& path);

/// One point of a folder, as it is now. A result file that is whole decides over the status word.
PointRecord load_point(const std::filesystem::path& run_folder, const std::string& id);

/// Fills a point, of which id and planned options are known, from its folder. Returns what is wrong
/// with it; "" when all is well.
std::string read_point(const std::filesystem::path& run_folder, PointRecord& point);

/// The word in a point's status file; "" where there is none that can be read.
std::string status_word(const std::filesystem::path& run_folder, const std::string& id);

/// Removes from a record, or from the metrics alone, what is not of the kind that the schema says,
/// so that scripts can compute with the rest. Returns what was removed, in words.
std::vector<std::string> make_well_typed(Json& record);
std::vector<std::string> make_metrics_well_typed(Json& metrics);

/// File names of visualizations/*.plot.json, sorted.
std::vector<std::string> plot_names(const std::filesystem::path& run_folder);

/// True for what may name a point or a run: 1 to 64 letters, digits, '_' and '-'.
bool is_plain_name(const std::string& name);

/// True when a path exists and really lies in the folder, links followed. Folders from others may
/// hold links to anywhere; only what lies inside is read.
bool lies_inside(const std::filesystem::path& folder, const std::filesystem::path& path);

/// Last bytes of a point's log (log.rank0.txt), for error reports and the log panel.
std::string read_log_tail(const std::filesystem::path& run_folder, const std::string& point_id,
                          size_t max_bytes = 16384);

}  // namespace moonshard::records
