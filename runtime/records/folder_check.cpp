#include "runtime/records/folder_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <system_error>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/records/csv.h"
#include "runtime/records/file_check.h"
#include "runtime/records/plot_spec.h"
#include "runtime/records/reader.h"
#include "runtime/records/writer.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostText = 64u << 20;  // of a table or a page
constexpr size_t kMostFolders = 100'000;

std::string without(const std::string& text, const std::string& prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

class FolderDoctor {
 public:
  FolderDoctor(const fs::path& path, const TypedOptions& typed) : path_(path), typed_(typed) {
    check_.path = path;
  }

  FolderCheck examine() {
    std::error_code error;
    if (fs::is_regular_file(path_, error)) {
      examine_single(path_);
    } else if (fs::exists(path_ / "sweep.json", error)) {
      examine_run();
    } else if (fs::is_directory(path_, error)) {
      examine_suite_files();
    } else {
      throw IoError(path_.string() + ": expected a folder or a file, got nothing at that path");
    }
    return std::move(check_);
  }

 private:
  std::string name_of(const fs::path& file) const {
    const std::string below = file.lexically_relative(path_).string();
    return below.empty() || below == "." ? file.filename().string() : below;
  }
  void add(const fs::path& file, const std::string& what) {
    check_.defects.push_back({name_of(file), without(what, file.string() + ": ")});
  }

  // Runs `look`; what it throws is a defect of the file.
  template <class Look>
  bool guarded(const fs::path& file, const Look& look) {
    ++check_.files;
    if (file != path_ && !lies_inside(path_, file)) {
      add(file, "leads out of the folder; it is not read");
      return false;
    }
    try {
      look();
      return true;
    } catch (const std::exception& error) {
      add(file, error.what());
      return false;
    }
  }

  bool exists(const fs::path& file) const {
    std::error_code error;
    return fs::exists(fs::symlink_status(file, error));
  }

  Json read(const fs::path& file) {
    Json value;
    guarded(file, [&] { value = read_json_file(file); });
    return value;
  }

  // ---- one file -------------------------------------------------------------------------------

  void examine_single(const fs::path& file) {
    const Json value = read(file);
    if (!value.is_object()) return;
    const Json& record = value.contains("record") ? value["record"] : value;
    if (record.contains("status") && record.contains("options")) {
      ++check_.points;
      for (const std::string& defect : check_record(record)) add(file, defect);
    } else {
      check_suite_result(file, value);
    }
  }

  // Keys that every result file of the profiling suites has.
  void check_suite_result(const fs::path& file, const Json& value) {
    if (!value.is_object()) return add(file, "expected an object");
    if (!value.contains("mode") && !value.contains("experiment"))
      add(file, "expected the key 'mode' or 'experiment', got neither");
    for (const char* key : {"peak_memory_mb", "avg_time_ms"}) {
      if (!value.contains(key) || !value[key].is_number() || value[key].get<double>() < 0)
        add(file, fmt::format("{}: expected a number of 0 or more, got {}", key,
                              value.contains(key) ? one_line(value[key]).substr(0, 40) : "none"));
    }
    if (!value.contains("config") || !value["config"].is_object())
      add(file, "config: expected an object, got none");
  }

  void examine_suite_files() {
    std::error_code error;
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(path_, error)) {
      if (!entry.path().filename().string().ends_with("_result.json")) continue;
      ++count;
      const Json value = read(entry.path());
      if (!value.is_null()) check_suite_result(entry.path(), value);
    }
    if (count == 0)
      throw IoError(path_.string() +
                    ": expected a run folder (sweep.json) or *_result.json files, got neither");
  }

  // ---- a run folder ---------------------------------------------------------------------------

  void examine_run() {
    sweep_ = read(path_ / "sweep.json");
    if (!sweep_.is_object() && !sweep_.is_null()) add(path_ / "sweep.json", "expected an object");
    if (sweep_.is_object()) {
      check_sweep();
      for (const Json& planned : points()) {
        try {
          examine_point(planned);
        } catch (const std::exception& error) {  // whatever a record of others may hold
          add(path_ / "points" / string_or(planned, "id", "?"), error.what());
        }
      }
      check_index();
      check_points_folder();
    }
    check_environment();
    check_claims();
    check_root_files();
    check_figures();
  }

  std::vector<Json> points() const {
    const auto found = sweep_.find("points");
    return found != sweep_.end() && found->is_array() ? found->get<std::vector<Json>>()
                                                      : std::vector<Json>();
  }

  void check_sweep() {
    const fs::path file = path_ / "sweep.json";
    const double version = number_or(sweep_, "schema_version", 0);
    if (version < 1 || version > kSchemaVersion)
      add(file, fmt::format("schema_version: expected 1 to {}, got {}", kSchemaVersion, version));
    if (!sweep_.contains("axes") || !sweep_["axes"].is_array())
      add(file, "axes: expected a list of options, got none");
    if (!sweep_.contains("points") || !sweep_["points"].is_array())
      return add(file, "points: expected a list, got none");
    std::set<std::string> seen;
    for (const Json& point : sweep_["points"]) {
      const std::string id = string_or(point, "id", "");
      if (!is_plain_name(id)) {
        add(file,
            fmt::format("a point's id: expected letters and digits, got '{}'", id.substr(0, 40)));
        continue;
      }
      if (!seen.insert(id).second) add(file, "point " + id + " is there twice");
      if (!point.contains("options") || !point["options"].is_object()) {
        add(file, "point " + id + ": expected its options, got none");
      } else {
        check_id(file, id, point["options"]);
      }
    }
  }

  void check_id(const fs::path& file, const std::string& id, const Json& options) {
    const std::optional<Json> typed = typed_(options);
    if (!typed) {
      check_.notes.push_back("point " + id +
                             ": its options are of another version; its id is not checked");
    } else if (options_hash(*typed) != id) {
      add(file, fmt::format("point {}: its options give the id {}", id, options_hash(*typed)));
    }
  }

  void examine_point(const Json& planned) {
    const std::string id = string_or(planned, "id", "");
    if (!is_plain_name(id)) return;
    const fs::path folder = path_ / "points" / id;
    if (!exists(folder)) {
      check_.notes.push_back("point " + id + " has not run");
      return;
    }
    const fs::path file = folder / "result.json";
    if (!exists(file)) {
      check_.notes.push_back("point " + id + " has no record yet");
      check_status(folder, "");
      return;
    }
    const Json record = read(file);
    if (record.is_null()) return;
    ++check_.points;
    for (const std::string& defect : check_record(record)) add(file, defect);
    if (!record.is_object()) return;
    if (const Json options = part_of(record, "options"); !typed_(options))
      check_.notes.push_back("point " + id +
                             ": its record has options of another version, or of another kind");
    if (record.contains("id") && string_or(record, "id", "") != id)
      add(file, fmt::format("id: expected {}, the folder's name, got '{}'", id,
                            string_or(record, "id", "")));
    check_axes(file, record, planned);
    check_status(folder, string_or(record, "status", ""));
    check_tables(folder, record);
    check_binaries(folder);
    check_copy(planned, record);
  }

  // An object's member that should be an object; an empty one where it is not.
  static Json part_of(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_object() ? *found : Json::object();
  }

  // What the sweep varies must be what ran; other options may have been filled in by the run.
  void check_axes(const fs::path& file, const Json& record, const Json& planned) {
    if (!sweep_.contains("axes") || !sweep_["axes"].is_array()) return;
    const Json wanted = part_of(planned, "options"), had = part_of(record, "options");
    for (const Json& axis : sweep_["axes"]) {
      if (!axis.is_string()) continue;
      const std::string name = axis.get<std::string>();
      const Json asked = wanted.value(name, Json()), ran = had.value(name, Json());
      if (asked != ran)
        add(file, fmt::format("options.{}: expected {} as in sweep.json, got {}", name,
                              one_line(asked), one_line(ran)));
    }
  }

  void check_status(const fs::path& folder, const std::string& of_record) {
    const fs::path file = folder / "status";
    if (!exists(file)) return;
    guarded(file, [&] {
      std::string word = read_text_file(file, 256);
      while (!word.empty() && (word.back() == '\n' || word.back() == ' ')) word.pop_back();
      static const std::set<std::string> known = {"planned", "running", "ok",          "oom",
                                                  "failed",  "timeout", "interrupted", "skipped"};
      if (!known.contains(word))
        throw IoError("expected a status word, got '" + word.substr(0, 40) + "'");
      if (!of_record.empty() && word != of_record)
        throw IoError(fmt::format("expected {}, which the record says, got {}", of_record, word));
    });
  }

  void check_tables(const fs::path& folder, const Json& record) {
    std::map<std::string, std::string> made;
    try {
      for (auto& [name, text] : point_tables(record)) made[name] = std::move(text);
    } catch (const std::exception&) {
      return;  // the record's own defects say why
    }
    for (const char* name : {"steps.csv", "memory.csv", "comm.csv", "layers.csv"}) {
      const fs::path file = folder / name;
      if (!exists(file)) continue;
      guarded(file, [&] {
        const std::string text = read_text_file(file, kMostText);
        if (!made.contains(name)) throw IoError("the record has no rows for it");
        if (text == made[name]) return;
        const std::string where = file.string();
        const std::string difference =
            first_difference(parse_csv(text, where, kMostFolders * 10),
                             parse_csv(made[name], where, kMostFolders * 10));
        if (!difference.empty()) throw IoError("is not what result.json says: " + difference);
        if (text.empty() || text.back() != '\n') throw IoError("its last line is cut off");
      });
    }
  }

  void check_binaries(const fs::path& folder) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename().string();
      if (is_temporary_name(name)) {
        add(entry.path(), "left over by a writer that was killed; it can be removed");
      } else if (name.ends_with(".gz")) {
        guarded(entry.path(), [&] { expect_gzip(entry.path()); });
      } else if (name.ends_with(".pickle")) {
        guarded(entry.path(), [&] { expect_pickle(entry.path()); });
      }
    }
  }

  // The profiling suites' file of the point, where the sweep names it.
  void check_copy(const Json& planned, const Json& record) {
    const std::string name = string_or(planned, "file", "");
    if (name.empty() || name.find('/') != std::string::npos) return;
    const fs::path file = path_ / name;
    if (!exists(file) || string_or(record, "status", "") != "ok") return;
    const Json copy = read(file);
    if (!copy.is_object()) return;
    copies_.insert(name);
    check_suite_result(file, copy);
    const Json metrics = part_of(record, "metrics");
    for (const char* key : {"peak_memory_mb", "avg_time_ms"}) {
      const double own = number_or(copy, key, NAN), wanted = number_or(metrics, key, NAN);
      if (own != wanted && own == own && wanted == wanted)
        add(file, fmt::format("{}: expected {:.10g} as in points/{}, got {:.10g}", key, wanted,
                              string_or(planned, "id", ""), own));
    }
  }

  void check_index() {
    const fs::path file = path_ / "index.csv";
    if (!exists(file)) return add(file, "expected a table of all points, got none");
    guarded(file, [&] {
      const CsvTable found =
          parse_csv(read_text_file(file, kMostText), file.string(), kMostFolders);
      const CsvTable made =
          parse_csv(RunIndex(load_run_folder(path_)).csv(), file.string(), kMostFolders);
      const std::string difference = first_difference(found, made);
      if (!difference.empty()) throw IoError("is not what the records say: " + difference);
    });
  }

  void check_points_folder() {
    std::set<std::string> planned;
    for (const Json& point : points()) planned.insert(string_or(point, "id", ""));
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path_ / "points", error)) {
      const std::string name = entry.path().filename().string();
      if (!planned.contains(name)) add(entry.path(), "sweep.json has no such point");
    }
  }

  void check_environment() {
    const fs::path file = path_ / "env.json";
    if (!exists(file)) return add(file, "expected the machine and its versions, got no file");
    const Json value = read(file);
    if (!value.is_null() && !(number_or(value, "schema_version", 0) >= 1))
      add(file, "schema_version: expected 1 or more, got none");
  }

  void check_claims() {
    const fs::path file = path_ / "expect.json";
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
    for (const auto& entry : fs::directory_iterator(path_, error)) {
      const fs::path& file = entry.path();
      const std::string name = file.filename().string();
      if (is_temporary_name(name)) {
        add(file, "left over by a writer that was killed; it can be removed");
      } else if (name.ends_with("_result.json") && !copies_.contains(name)) {
        const Json value = read(file);
        if (!value.is_null()) check_suite_result(file, value);
      } else if (name == "progress.json" || name == "raw_metrics.json" || name == "torch.json") {
        read(file);
      } else if (name == "comparison_table.csv") {
        guarded(file, [&] {
          const CsvTable table =
              parse_csv(read_text_file(file, kMostText), file.string(), kMostFolders);
          if (table.rows.size() != points().size())
            throw IoError(fmt::format("expected {} rows, one per point, got {}", points().size(),
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
    for (const auto& entry : fs::directory_iterator(path_ / "visualizations", error)) {
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

  fs::path path_;
  const TypedOptions& typed_;
  FolderCheck check_;
  Json sweep_;
  std::set<std::string> copies_;
};

}  // namespace

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
