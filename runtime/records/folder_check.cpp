#include "runtime/records/folder_check.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/records/csv.h"
#include "runtime/records/file_check.h"
#include "runtime/records/folder_exam.h"
#include "runtime/records/plot_spec.h"
#include "runtime/records/run_table.h"
#include "runtime/records/writer.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;

std::string without(const std::string& text, const std::string& prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

class FolderDoctor : private FolderExam {
 public:
  using FolderExam::FolderExam;

  FolderCheck examine() {
    std::error_code error;
    if (fs::is_regular_file(path, error)) {
      examine_single(path);
    } else if (fs::exists(path / "sweep.json", error)) {
      examine_run();
    } else if (fs::is_directory(path, error)) {
      examine_suite_files();
    } else {
      throw IoError(path.string() + ": expected a folder or a file, got nothing at that path");
    }
    return std::move(found);
  }

 private:
  // ---- one file -------------------------------------------------------------------------------

  void examine_single(const fs::path& file) {
    const Json value = read(file);
    if (!value.is_object()) return;
    const Json& record = value.contains("record") ? value["record"] : value;
    if (record.contains("status") && record.contains("options")) {
      ++found.points;
      for (const std::string& defect : check_record(record)) add(file, defect);
    } else {
      check_suite_result(*this, file, value);
    }
  }

  void examine_suite_files() {
    std::error_code error;
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(path, error)) {
      if (!entry.path().filename().string().ends_with("_result.json")) continue;
      ++count;
      const Json value = read(entry.path());
      if (!value.is_null()) check_suite_result(*this, entry.path(), value);
    }
    if (count == 0)
      throw IoError(path.string() +
                    ": expected a run folder (sweep.json) or *_result.json files, got neither");
  }

  // ---- a run folder ---------------------------------------------------------------------------

  void examine_run() {
    if (read_grid()) {
      for (PlannedPoint& planned : points_) {
        planned.options = all_options(common_, planned.options);
        check_id(planned);
        try {
          examine_point(*this, axes_, planned);
        } catch (const std::exception& error) {  // whatever a record of others may hold
          add(path / "points" / planned.id, error.what());
        }
        planned.options = Json();
      }
      check_index();
      check_points_folder();
    }
    if (without_digest > 0)
      note(
          fmt::format("{} records carry no digest: an older version wrote them, and a change of "
                      "theirs is not noticed",
                      without_digest));
    check_environment();
    check_claims();
    check_root_files();
    check_figures();
  }

  // sweep.json: false when nothing can be said of the points.
  bool read_grid() {
    const fs::path file = path / "sweep.json";
    Json sweep;
    std::set<std::string> seen;
    const auto take = [&](Json&& point) {
      const std::string id = string_or(point, "id", "");
      if (!is_plain_name(id)) {
        add(file,
            fmt::format("a point's id: expected letters and digits, got '{}'", id.substr(0, 40)));
        return;
      }
      if (!seen.insert(id).second) add(file, "point " + id + " is there twice");
      const bool has_options = point.contains("options") && point["options"].is_object();
      if (!has_options) add(file, "point " + id + ": expected its options, got none");
      points_.push_back({id, has_options ? point["options"] : Json::object(),
                         string_or(point, "file", ""), Json::object()});
    };
    const bool is_read = guarded(file, [&] {
      const std::string text = read_text_file(file, kSweepLimits.max_bytes);
      sweep = parse_json_list(text, file.string(), "points", take, kSweepLimits);
      const Digest digest = check_digest(text);
      if (digest == Digest::Wrong)
        add(file, "was changed after it was written: its digest is another");
      if (digest == Digest::None) note("sweep.json carries no digest: an older version wrote it");
    });
    if (is_read && !sweep.is_object()) add(file, "expected an object");
    if (!sweep.is_object()) return false;
    const double version = number_or(sweep, "schema_version", 0);
    if (version < 1 || version > kSweepVersion)
      add(file, fmt::format("schema_version: expected 1 to {}, got {}", kSweepVersion, version));
    if (!sweep.contains("axes") || !sweep["axes"].is_array()) {
      add(file, "axes: expected a list of options, got none");
    } else {
      for (const Json& axis : sweep["axes"])
        if (axis.is_string()) axes_.push_back(axis.get<std::string>());
    }
    if (!sweep.contains("points") || !sweep["points"].is_array())
      add(file, "points: expected a list, got none");
    if (sweep.contains("common") && sweep["common"].is_object()) common_ = sweep["common"];
    return true;
  }

  void check_id(const PlannedPoint& point) {
    // Points of a script's own function are named by their options as they stand.
    if (point.options.empty() || options_hash(point.options) == point.id) return;
    const std::optional<Json> as_typed = typed(point.options);
    if (!as_typed) {
      note("point " + point.id + ": its options are of another version; its id is not checked");
    } else if (options_hash(*as_typed) != point.id) {
      add(path / "sweep.json",
          fmt::format("point {}: its options give the id {}", point.id, options_hash(*as_typed)));
    }
  }

  void check_index() {
    const fs::path file = path / "index.csv";
    if (!exists(file)) return add(file, "expected a table of all points, got none");
    guarded(file, [&] {
      const CsvTable index =
          parse_csv(read_text_file(file, kSweepLimits.max_bytes), file.string(), kMostTableRows);
      std::string text;
      RunTable(path).write_csv([&](const std::string& row) { text += row; });
      const std::string difference =
          first_difference(index, parse_csv(text, file.string(), kMostTableRows));
      if (!difference.empty()) throw IoError("is not what the records say: " + difference);
    });
  }

  void check_points_folder() {
    std::set<std::string> planned;
    for (const PlannedPoint& point : points_) planned.insert(point.id);
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path / "points", error)) {
      const std::string name = entry.path().filename().string();
      if (!planned.contains(name)) add(entry.path(), "sweep.json has no such point");
    }
  }

  void check_environment() {
    const fs::path file = path / "env.json";
    if (!exists(file)) return add(file, "expected the machine and its versions, got no file");
    const Json value = read(file);
    if (!value.is_null() && !(number_or(value, "schema_version", 0) >= 1))
      add(file, "schema_version: expected 1 or more, got none");
  }

  void check_claims() {
    const fs::path file = path / "expect.json";
    if (!exists(file)) return;
    const Json value = read(file);
    if (value.is_null()) return;
    if (!value.is_object() || !value.contains("claims") || !value["claims"].is_array())
      return add(file, "claims: expected a list, got none");
    static const std::set<std::string> verdicts = {"confirmed", "refuted", "undecided",
                                                   "not measured"};
    for (const Json& claim : value["claims"]) {
      const std::string verdict = string_or(claim, "verdict", "");
      if (!verdicts.contains(verdict))
        add(file, fmt::format("verdict: expected confirmed, refuted, undecided or not measured, "
                              "got '{}'",
                              verdict.substr(0, 40)));
    }
  }

  void check_root_files() {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path, error)) {
      const fs::path& file = entry.path();
      const std::string name = file.filename().string();
      if (is_temporary_name(name)) {
        add(file, "left over by a writer that was killed; it can be removed");
      } else if (name.ends_with("_result.json") && !copies.contains(name)) {
        const Json value = read(file);
        if (!value.is_null()) check_suite_result(*this, file, value);
      } else if (name == "progress.json" || name == "raw_metrics.json" || name == "torch.json") {
        read(file);
      } else if (name == "comparison_table.csv") {
        guarded(file, [&] {
          const CsvTable table =
              parse_csv(read_text_file(file, kMostTableBytes), file.string(), kMostTableRows);
          if (table.rows.size() != points_.size())
            throw IoError(fmt::format("expected {} rows, one per point, got {}", points_.size(),
                                      table.rows.size()));
        });
      } else if (name == "summary.txt" || name == "summary.md") {
        guarded(file, [&] { expect_some_text(file); });
      } else if (name == "report.html") {
        guarded(file, [&] { expect_page(file); });
      }
    }
  }

  void check_figures() {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path / "visualizations", error)) {
      const fs::path& file = entry.path();
      const std::string name = file.filename().string();
      if (is_temporary_name(name)) {
        add(file, "left over by a writer that was killed; it can be removed");
      } else if (name.ends_with(".plot.json")) {
        guarded(file, [&] { plot_spec_from_json(read_json_file(file), file.string()); });
      } else if (name.ends_with(".png")) {
        guarded(file, [&] { expect_png(file); });
      }
    }
  }

  std::vector<std::string> axes_;
  std::vector<PlannedPoint> points_;  ///< with their own options only
  Json common_ = Json::object();
};

}  // namespace

void FolderExam::add(const fs::path& file, const std::string& what) {
  const std::string below = file.lexically_relative(path).string();
  const bool is_itself = below.empty() || below == ".";
  found.defects.push_back(
      {is_itself ? file.filename().string() : below, without(what, file.string() + ": ")});
}

bool FolderExam::exists(const fs::path& file) const {
  std::error_code error;
  return fs::exists(fs::symlink_status(file, error));
}

Json FolderExam::read(const fs::path& file, std::string* text) {
  Json value;
  guarded(file, [&] {
    std::string own;
    std::string& bytes = text ? *text : own;
    bytes = read_text_file(file, JsonLimits().max_bytes);
    value = parse_json(bytes, file.string());
  });
  return value;
}

FolderCheck check_folder(const fs::path& path, const TypedOptions& typed) {
  return FolderDoctor(path, typed).examine();
}

Json to_json(const FolderCheck& check) {
  Json defects = Json::array();
  for (const Defect& defect : check.defects)
    defects.push_back({{"file", defect.file}, {"what", defect.what}});
  return {{"path", check.path.string()},
          {"files", check.files},
          {"points", check.points},
          {"defects", std::move(defects)},
          {"notes", check.notes}};
}

}  // namespace moonshard::records
