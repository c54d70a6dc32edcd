#include "runtime/records/reader.h"

#include <algorithm>
#include <fstream>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/records/csv.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPointsPerFolder = 100'000;
constexpr size_t kMaxProblems = 100;

void add_problem(RunFolder& run, const std::string& text) {
  if (run.problems.size() < kMaxProblems) run.problems.push_back(text);
}

// The status file is one word, written by the sweep's parent; the result file decides when they
// differ, because a parent that was killed could not write the word.
std::string read_status_word(const fs::path& point_folder) {
  std::string word = read_text_file(point_folder / "status", 256);
  word.erase(std::find_if(word.begin(), word.end(), [](char c) { return c == '\n' || c == ' '; }),
             word.end());
  return word;
}

// Returns what is wrong with it; "" when all is well.
std::string read_point(const fs::path& run_path, PointRecord& point) {
  const fs::path folder = run_path / "points" / point.id;
  std::error_code error;
  if (!fs::exists(folder, error)) return "";  // planned, not started
  try {
    if (!lies_inside(run_path, folder))
      throw IoError(folder.string() + ": leads out of the run folder");
    if (fs::exists(folder / "status", error) && lies_inside(run_path, folder / "status")) {
      point.status = read_status_word(folder);
    }
    if (!fs::exists(folder / "result.json", error)) return "";
    if (!lies_inside(run_path, folder / "result.json")) {
      throw IoError((folder / "result.json").string() + ": leads out of the run folder");
    }
    point.result = read_json_file(folder / "result.json");
    if (!point.result.is_object()) throw IoError(point.id + ": result.json is not an object");
    point.status = string_or(point.result, "status", point.status);
    point.error = string_or(point.result, "error", "");
    if (point.result.contains("options") && point.result["options"].is_object()) {
      point.options = point.result["options"];
    }
    if (point.result.contains("metrics") && point.result["metrics"].is_object()) {
      point.metrics = point.result["metrics"];
    }
  } catch (const std::exception& problem) {
    point.status = "unreadable";
    point.error = problem.what();
    return point.error;
  }
  return "";
}

void read_grid(RunFolder& run, const Json& sweep) {
  run.name = string_or(sweep, "name", run.path.filename().string());
  run.created = string_or(sweep, "created", "");
  if (sweep.contains("axes") && sweep["axes"].is_array()) {
    for (const Json& axis : sweep["axes"]) {
      if (axis.is_string()) run.axes.push_back(axis.get<std::string>());
    }
  }
  if (sweep.contains("request") && sweep["request"].is_object()) run.request = sweep["request"];
  if (!sweep.contains("points") || !sweep["points"].is_array()) return;
  for (const Json& entry : sweep["points"]) {
    PointRecord point;
    point.id = string_or(entry, "id", "");
    if (!is_plain_name(point.id)) {
      add_problem(run, fmt::format("sweep.json: a point's id is '{}', expected letters and digits",
                                   point.id.substr(0, 40)));
      continue;
    }
    point.status = "planned";
    if (entry.contains("options") && entry["options"].is_object()) point.options = entry["options"];
    run.points.push_back(std::move(point));
    if (run.points.size() >= kMaxPointsPerFolder) {
      add_problem(run, fmt::format("sweep.json: more than {} points, the rest is not shown",
                                   kMaxPointsPerFolder));
      break;
    }
  }
}

void list_plots(RunFolder& run) {
  std::error_code error;
  const fs::path folder = run.path / "visualizations";
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".plot.json") && !is_temporary_name(name) &&
        lies_inside(run.path, entry.path())) {
      run.plots.push_back(name);
    }
  }
  std::sort(run.plots.begin(), run.plots.end());
}

}  // namespace

bool is_plain_name(const std::string& name) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), plain);
}

bool lies_inside(const fs::path& folder, const fs::path& path) {
  std::error_code error;
  const fs::path real_folder = fs::canonical(folder, error);
  if (error) return false;
  const fs::path real = fs::canonical(path, error);
  if (error) return false;
  const auto [end, unused] =
      std::mismatch(real_folder.begin(), real_folder.end(), real.begin(), real.end());
  return end == real_folder.end();
}

RunFolder load_run_folder(const fs::path& path) {
  RunFolder run;
  run.path = path;
  const fs::path sweep_file = path / "sweep.json";
  std::error_code error;
  if (!fs::exists(sweep_file, error)) {
    throw IoError(
        fmt::format("{}: expected a run folder with sweep.json, got {}; give a folder "
                    "like results/run_YYYYMMDD_HHMMSS",
                    path.string(),
                    fs::is_directory(path, error) ? "a folder without one"
                    : fs::exists(path, error)     ? "a file"
                                                  : "nothing at that path"));
  }
  if (!lies_inside(path, sweep_file)) {
    throw IoError(sweep_file.string() + ": leads out of the run folder; it is not opened");
  }
  const Json sweep = read_json_file(sweep_file);
  const double version = number_or(sweep, "schema_version", 0);
  if (version < 1 || version > kSchemaVersion) {
    throw IoError(
        fmt::format("{}: expected schema_version 1 to {}, got {}; open it with a newer moonshard",
                    sweep_file.string(), kSchemaVersion, version));
  }
  read_grid(run, sweep);
  try {
    if (lies_inside(path, path / "env.json")) run.environment = read_json_file(path / "env.json");
  } catch (const std::exception& problem) {
    add_problem(run, problem.what());
  }
  for (PointRecord& point : run.points) {
    const std::string problem = read_point(path, point);
    if (!problem.empty()) add_problem(run, problem);
  }
  list_plots(run);
  return run;
}

PointRecord load_point(const fs::path& run_folder, const std::string& id) {
  MS_CHECK(is_plain_name(id), "run folder: expected a point's id of letters and digits, got '{}'",
           id.substr(0, 60));
  PointRecord point;
  point.id = id;
  point.status = "planned";
  read_point(run_folder, point);
  return point;
}

std::string read_log_tail(const fs::path& run_folder, const std::string& point_id,
                          size_t max_bytes) {
  const fs::path log = run_folder / "points" / point_id / "log.rank0.txt";
  if (!is_plain_name(point_id) || !lies_inside(run_folder, log)) return "";
  std::ifstream in(log, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const std::streamoff size = in.tellg();
  const std::streamoff start =
      std::max<std::streamoff>(0, size - static_cast<std::streamoff>(max_bytes));
  in.seekg(start);
  std::string text(static_cast<size_t>(size - start), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

RunIndex::RunIndex(const RunFolder& run) : axes_(run.axes) {
  for (const PointRecord& point : run.points) update(point);
}

void RunIndex::update(const PointRecord& point) {
  const auto [place, is_new] = rows_.try_emplace(point.id);
  if (is_new) ids_.push_back(point.id);
  Row& row = place->second;
  row.status = point.status;
  row.error = point.error;
  const Json world = point.options.value("world", Json());
  row.is_modelled = world.is_string() && world.get<std::string>().starts_with("fake:");
  // A record that never came leaves the planned options, which only the whole folder knows.
  if (is_new || !point.options.empty()) {
    row.axis_cells.clear();
    for (const std::string& axis : axes_)
      row.axis_cells.push_back(cell_text(point.options.value(axis, Json())));
  }
  row.metrics.clear();
  for (const auto& [key, value] : point.metrics.items()) {
    if (!value.is_primitive()) continue;
    row.metrics[key] = cell_text(value);
    metric_names_.insert(key);
  }
}

std::string RunIndex::csv() const {
  CsvTable table;
  table.columns = {"id", "status"};
  // Where times of communication are those of a model, the table says so.
  const bool has_modelled = std::any_of(rows_.begin(), rows_.end(),
                                        [](const auto& row) { return row.second.is_modelled; });
  if (has_modelled) table.columns.push_back("modelled");
  table.columns.insert(table.columns.end(), axes_.begin(), axes_.end());
  table.columns.insert(table.columns.end(), metric_names_.begin(), metric_names_.end());
  table.columns.push_back("error");
  for (const std::string& id : ids_) {
    const Row& row = rows_.at(id);
    std::vector<std::string> cells{id, row.status};
    if (has_modelled) cells.push_back(row.is_modelled ? "communication" : "");
    cells.insert(cells.end(), row.axis_cells.begin(), row.axis_cells.end());
    for (const std::string& name : metric_names_) {
      const auto found = row.metrics.find(name);
      cells.push_back(found != row.metrics.end() ? found->second : "");
    }
    cells.push_back(row.error);
    table.rows.push_back(std::move(cells));
  }
  return to_csv(table);
}

}  // namespace moonshard::records
