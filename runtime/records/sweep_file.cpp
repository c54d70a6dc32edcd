#include "runtime/records/sweep_file.h"

#include "runtime/base/check.h"
#include "runtime/base/disk.h"
#include "runtime/records/reader.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;

constexpr size_t kWriteBytes = 1u << 20;  // at a time

Json object_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : Json::object();
}

}  // namespace

void refuse_folder_without_sweep(const fs::path& folder) {
  std::error_code error;
  throw IoError(
      fmt::format("{}: expected a run folder with sweep.json, got {}; give a folder "
                  "like results/run_YYYYMMDD_HHMMSS",
                  folder.string(),
                  fs::is_directory(folder, error) ? "a folder without one"
                  : fs::exists(folder, error)     ? "a file"
                                                  : "nothing at that path"));
}

SweepHead read_sweep_file(const fs::path& folder, const std::function<void(PlannedPoint&&)>& take) {
  const fs::path file = folder / "sweep.json";
  if (!is_there(file)) refuse_folder_without_sweep(folder);
  if (!lies_inside(folder, file))
    throw IoError(file.string() + ": leads out of the run folder; it is not opened");
  const std::string text = read_text_file(file, kSweepLimits.max_bytes);
  SweepHead head;
  head.digest = check_digest(text);
  size_t count = 0;
  const auto take_entry = [&](Json&& entry) {
    PlannedPoint point{string_or(entry, "id", ""), object_in(entry, "options"),
                       string_or(entry, "file", ""), object_in(entry, "asked")};
    if (!is_plain_name(point.id)) {
      if (head.problems.size() < kMaxProblems)
        head.problems.push_back(
            fmt::format("sweep.json: a point's id is '{}', expected letters and digits",
                        point.id.substr(0, 40)));
    } else if (++count <= kMaxPointsPerFolder) {
      take(std::move(point));
    } else if (count == kMaxPointsPerFolder + 1) {
      head.problems.push_back(fmt::format("sweep.json: more than {} points, the rest is not shown",
                                          kMaxPointsPerFolder));
    }
  };
  const Json sweep = parse_json_list(text, file.string(), "points", take_entry, kSweepLimits);
  const double version = number_or(sweep, "schema_version", 0);
  if (version < 1 || version > kSweepVersion) {
    throw IoError(
        fmt::format("{}: expected schema_version 1 to {}, got {}; open it with a newer moonshard",
                    file.string(), kSweepVersion, version));
  }
  head.name = string_or(sweep, "name", folder.filename().string());
  head.created = string_or(sweep, "created", "");
  if (const auto axes = sweep.find("axes"); axes != sweep.end() && axes->is_array()) {
    for (const Json& axis : *axes)
      if (axis.is_string()) head.axes.push_back(axis.get<std::string>());
  }
  head.request = object_in(sweep, "request");
  head.common = object_in(sweep, "common");
  if (head.digest == Digest::Wrong)
    head.problems.push_back("sweep.json: was changed after it was written: its digest is another");
  return head;
}

Json all_options(const Json& common, const Json& own) {
  if (common.empty()) return own;
  Json all = common;
  all.update(own);
  return all;
}

SweepFileWriter::SweepFileWriter(const fs::path& folder, const SweepHead& head)
    : file_(folder / "sweep.json", StagedFile::OnInterrupt::GoOn) {
  std::string text = to_text(Json{{"schema_version", kSweepVersion},
                                  {"name", head.name},
                                  {"created", head.created},
                                  {"axes", head.axes},
                                  {"common", head.common},
                                  {"request", head.request}});
  text.resize(text.size() - std::string_view("\n}\n").size());
  write(text + ",\n  \"points\": [");
}

void SweepFileWriter::add(const PlannedPoint& point) {
  Json entry{{"id", point.id}};
  if (!point.file_name.empty()) entry["file"] = point.file_name;
  if (!point.asked.empty()) entry["asked"] = point.asked;
  entry["options"] = point.options;
  write((points_++ == 0 ? "\n    " : ",\n    ") + one_line(entry));
}

void SweepFileWriter::finish() {
  write("\n  ]");
  waiting_ += digest_end(hash_.hex());
  file_.write(waiting_.data(), static_cast<int64_t>(waiting_.size()));
  file_.finish();
  file_.commit();
  sync_folder(file_.target().parent_path());
}

void SweepFileWriter::write(const std::string& text) {
  MS_CHECK(static_cast<size_t>(hash_.bytes()) + text.size() < kSweepLimits.max_bytes - 1024,
           "sweep.json: expected at most {} MiB, got more with point {}; split the sweep",
           kSweepLimits.max_bytes >> 20, points_);
  hash_.add(text);
  waiting_ += text;
  if (waiting_.size() < kWriteBytes) return;
  file_.write(waiting_.data(), static_cast<int64_t>(waiting_.size()));
  waiting_.clear();
}

}  // namespace moonshard::records
