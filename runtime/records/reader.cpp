#include "runtime/records/reader.h"

#include <algorithm>
#include <fstream>

#include "runtime/base/check.h"
#include "runtime/base/disk.h"
#include "runtime/base/files.h"
#include "runtime/records/digest.h"
#include "runtime/records/sweep_file.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

bool is_plain_name(const std::string& name) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), plain);
}

bool lies_inside(const fs::path& folder, const fs::path& path) {
  const std::optional<fs::path> real_folder = disk().canonical(folder);
  if (!real_folder) return false;
  const std::optional<fs::path> real = disk().canonical(path);
  if (!real) return false;
  const auto [end, unused] =
      std::mismatch(real_folder->begin(), real_folder->end(), real->begin(), real->end());
  return end == real_folder->end();
}

std::string status_word(const fs::path& run_folder, const std::string& id) {
  const fs::path folder = run_folder / "points" / id;
  if (!is_plain_name(id) || !lies_inside(run_folder, folder / "status")) return "";
  try {
    return read_status_word(folder);
  } catch (const IoError&) {
    return "";
  }
}

std::string read_point(const fs::path& run_path, PointRecord& point) {
  const fs::path folder = run_path / "points" / point.id;
  if (!is_there(folder)) return "";  // planned, not started
  try {
    if (!lies_inside(run_path, folder))
      throw IoError(folder.string() + ": leads out of the run folder");
    if (is_there(folder / "status") && lies_inside(run_path, folder / "status")) {
      point.status = read_status_word(folder);
    }
    if (!is_there(folder / "result.json")) return "";
    if (!lies_inside(run_path, folder / "result.json")) {
      throw IoError((folder / "result.json").string() + ": leads out of the run folder");
    }
    const std::string where = (folder / "result.json").string();
    const std::string text = read_text_file(where, JsonLimits().max_bytes);
    point.result = parse_json(text, where);
    point.digest_text = digest_in(text);
    if (!point.result.is_object()) throw IoError(point.id + ": result.json is not an object");
    point.status = string_or(point.result, "status", point.status);
    point.error = string_or(point.result, "error", "");
    if (point.result.contains("options") && point.result["options"].is_object()) {
      point.options = point.result["options"];
    }
    if (point.result.contains("metrics") && point.result["metrics"].is_object()) {
      point.metrics = point.result["metrics"];
    }
    const auto own = point.result.find("own_metrics");
    if (own != point.result.end() && own->is_array()) {
      for (const Json& name : *own)
        if (name.is_string()) point.own_metrics.push_back(name.get<std::string>());
    }
    point.has_record = point.result.contains("status");
    if (check_digest(text) == Digest::Wrong)
      return where + ": was changed after it was written: its digest is another";
  } catch (const std::exception& problem) {
    point.status = "unreadable";
    point.error = problem.what();
    return point.error;
  }
  return "";
}

RunFolder load_run_folder(const fs::path& path) {
  RunFolder run;
  run.path = path;
  SweepHead head = read_sweep_file(path, [&](PlannedPoint&& planned) {
    PointRecord& point = run.points.emplace_back();
    point.id = std::move(planned.id);
    point.status = "planned";
    point.options = std::move(planned.options);
  });
  for (PointRecord& point : run.points) point.options = all_options(head.common, point.options);
  run.name = std::move(head.name);
  run.created = std::move(head.created);
  run.axes = std::move(head.axes);
  run.request = std::move(head.request);
  for (const std::string& problem : head.problems) add_problem(run, problem);
  try {
    if (lies_inside(path, path / "env.json")) run.environment = read_json_file(path / "env.json");
  } catch (const std::exception& problem) {
    add_problem(run, problem.what());
  }
  for (PointRecord& point : run.points) {
    const std::string problem = read_point(path, point);
    if (!problem.empty()) add_problem(run, problem);
  }
  run.plots = plot_names(path);
  return run;
}

std::vector<std::string> plot_names(const fs::path& run_folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_folder / "visualizations", error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".plot.json") && !is_temporary_name(name) &&
        lies_inside(run_folder, entry.path())) {
      names.push_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
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
  try {
    const ReadOnlyFile file = ReadOnlyFile::open(log);
    const int64_t bytes = std::min(file.size(), static_cast<int64_t>(max_bytes));
    std::string text(static_cast<size_t>(bytes), '\0');
    file.read_at(file.size() - bytes, text.data(), bytes, "log");
    return text;
  } catch (const IoError&) {
    return "";
  }
}

}  // namespace moonshard::records
