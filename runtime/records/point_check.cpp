// The files of one point, for moonshard doctor.
#include <cmath>
#include <map>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/records/csv.h"
#include "runtime/records/digest.h"
#include "runtime/records/file_check.h"
#include "runtime/records/folder_exam.h"
#include "runtime/records/run_table.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;

// An object's member that should be an object; an empty one where it is not.
Json part_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : Json::object();
}

void check_status(FolderExam& exam, const fs::path& folder, const std::string& of_record) {
  const fs::path file = folder / "status";
  if (!exam.exists(file)) return;
  exam.guarded(file, [&] {
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

void check_tables(FolderExam& exam, const fs::path& folder, const Json& record) {
  std::map<std::string, std::string> made;
  try {
    for (auto& [name, text] : point_tables(record)) made[name] = std::move(text);
  } catch (const std::exception&) {
    return;  // the record's own defects say why
  }
  for (const char* name : {"steps.csv", "memory.csv", "comm.csv", "layers.csv"}) {
    const fs::path file = folder / name;
    if (!exam.exists(file)) continue;
    exam.guarded(file, [&] {
      const std::string text = read_text_file(file, kMostTableBytes);
      if (!made.contains(name)) throw IoError("the record has no rows for it");
      if (text == made[name]) return;
      const std::string where = file.string();
      const std::string difference =
          first_difference(parse_csv(text, where, kMostTableRows * 10),
                           parse_csv(made[name], where, kMostTableRows * 10));
      if (!difference.empty()) throw IoError("is not what result.json says: " + difference);
      if (text.empty() || text.back() != '\n') throw IoError("its last line is cut off");
    });
  }
}

void check_binaries(FolderExam& exam, const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (is_temporary_name(name)) {
      exam.add(entry.path(), "left over by a writer that was killed; it can be removed");
    } else if (name.ends_with(".gz")) {
      exam.guarded(entry.path(), [&] { expect_gzip(entry.path()); });
    } else if (name.ends_with(".pickle")) {
      exam.guarded(entry.path(), [&] { expect_pickle(entry.path()); });
    }
  }
}

// The profiling suites' file of the point, where the sweep names it.
void check_copy(FolderExam& exam, const PlannedPoint& planned, const Json& record) {
  const std::string name = planned.file_name;
  if (name.empty() || name.find('/') != std::string::npos) return;
  const fs::path file = exam.path / name;
  if (!exam.exists(file) || string_or(record, "status", "") != "ok") return;
  const Json copy = exam.read(file);
  if (!copy.is_object()) return;
  exam.copies.insert(name);
  check_suite_result(exam, file, copy);
  const Json metrics = part_of(record, "metrics");
  for (const char* key : {"peak_memory_mb", "avg_time_ms"}) {
    const double own = number_or(copy, key, NAN), wanted = number_or(metrics, key, NAN);
    if (own != wanted && own == own && wanted == wanted)
      exam.add(file, fmt::format("{}: expected {:.10g} as in points/{}, got {:.10g}", key, wanted,
                                 planned.id, own));
  }
}

// A simulated run has the cluster beside the experiment's options (scripts/moonshard/plan_records),
// and names it as its world, which no experiment can be given.
Json as_experiment(Json options) {
  if (!string_or(options, "world", "").starts_with("modelled:")) return options;
  for (const char* name : {"world", "machine", "gpus", "nodes", "node_link", "nics", "slow_ranks",
                           "slow_by", "jitter"})
    options.erase(name);
  return options;
}

// Its digest says whether the record is as it was written.
void check_record_digest(FolderExam& exam, const fs::path& file, const std::string& text) {
  const Digest digest = check_digest(text);
  if (digest == Digest::Wrong)
    exam.add(file, "was changed after it was written: its digest is another");
  if (digest == Digest::None) ++exam.without_digest;
}

}  // namespace

void examine_point(FolderExam& exam, const std::vector<std::string>& axes,
                   const PlannedPoint& planned) {
  const std::string& id = planned.id;
  const fs::path folder = exam.path / "points" / id;
  if (!exam.exists(folder)) return exam.note("point " + id + " has not run");
  const fs::path file = folder / "result.json";
  if (!exam.exists(file)) {
    exam.note("point " + id + " has no record yet");
    return check_status(exam, folder, "");
  }
  std::string text;
  const Json record = exam.read(file, &text);
  if (record.is_null()) return;
  ++exam.found.points;
  check_record_digest(exam, file, text);
  for (const std::string& defect : check_record(record)) exam.add(file, defect);
  if (!record.is_object()) return;
  const Json options = part_of(record, "options");
  if (!exam.typed(as_experiment(options)))
    exam.note("point " + id + ": its record has options of another version, or of another kind");
  if (record.contains("id") && string_or(record, "id", "") != id)
    exam.add(file, fmt::format("id: expected {}, the folder's name, got '{}'", id,
                               string_or(record, "id", "")));
  // What the sweep varies must be what ran; other options may have been filled in by the run.
  for (const std::string& difference : option_differences(axes, planned.options, options, false))
    exam.add(file, difference);
  check_status(exam, folder, string_or(record, "status", ""));
  check_tables(exam, folder, record);
  check_binaries(exam, folder);
  check_copy(exam, planned, record);
}

// Keys that every result file of the profiling suites has.
void check_suite_result(FolderExam& exam, const fs::path& file, const Json& value) {
  if (!value.is_object()) return exam.add(file, "expected an object");
  if (!value.contains("mode") && !value.contains("experiment"))
    exam.add(file, "expected the key 'mode' or 'experiment', got neither");
  for (const char* key : {"peak_memory_mb", "avg_time_ms"}) {
    if (!value.contains(key) || !value[key].is_number() || value[key].get<double>() < 0)
      exam.add(file,
               fmt::format("{}: expected a number of 0 or more, got {}", key,
                           value.contains(key) ? one_line(value[key]).substr(0, 40) : "none"));
  }
  if (!value.contains("config") || !value["config"].is_object())
    exam.add(file, "config: expected an object, got none");
}

}  // namespace moonshard::records
