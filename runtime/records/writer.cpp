#include "runtime/records/writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>

#include "runtime/base/check.h"
#include "runtime/base/disk.h"
#include "runtime/base/files.h"
#include "runtime/records/digest.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCsvBytes = 1u << 20;  // written at a time
constexpr double kCsvShare = 50;        // index.csv takes at most a fiftieth of a sweep's time
constexpr double kCsvRowSeconds = 40e-6;
constexpr size_t kManyPoints = 2000;

std::string format_time(const char* format, bool utc) {
  const std::time_t now = disk().time();
  std::tm parts{};
  utc ? gmtime_r(&now, &parts) : localtime_r(&now, &parts);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, format, &parts));
}

[[noreturn]] void fail_to_make(const fs::path& folder, int error) {
  throw IoError(fmt::format("{}: cannot make the folder: {}; choose another 'out' folder",
                            folder.string(), std::strerror(error)));
}

}  // namespace

RunFolderWriter RunFolderWriter::create(const fs::path& root, const std::string& name) {
  MS_CHECK(name.empty() || is_plain_name(name),
           "run folder: expected a name of up to 64 letters, digits, '_' and '-', got '{}'",
           name.substr(0, 60));
  create_folders(root, Access::Shared);
  const std::string base =
      "run_" + format_time("%Y%m%d_%H%M%S", false) + (name.empty() ? "" : "_" + name);
  for (int attempt = 1; attempt < 1000; ++attempt) {
    const fs::path folder = root / (attempt == 1 ? base : fmt::format("{}-{}", base, attempt));
    if (disk().mkdir(folder.c_str(), 0777) == 0) {
      sync_folder(root);
      return RunFolderWriter(folder);
    }
    if (errno != EEXIST) fail_to_make(folder, errno);
  }
  throw IoError(fmt::format("{}: a thousand runs in one second", (root / base).string()));
}

RunFolderWriter RunFolderWriter::open(const fs::path& folder) {
  RunFolderWriter writer(folder);
  writer.table();  // throws unless it is one
  sweep_stale_temporaries(folder);
  if (lies_inside(folder, folder / "points")) {
    for (const std::string& name : disk().names_in(folder / "points")) {
      struct stat status {};
      const fs::path point = folder / "points" / name;
      if (disk().lstat(point.c_str(), status) == 0 && S_ISDIR(status.st_mode))
        sweep_stale_temporaries(point);
    }
  }
  if (lies_inside(folder, folder / "visualizations"))
    sweep_stale_temporaries(folder / "visualizations");
  return writer;
}

RunFolderWriter RunFolderWriter::attach(const fs::path& folder) {
  if (!is_there(folder / "sweep.json"))
    throw IoError(
        fmt::format("{}: expected a run folder with sweep.json, got none; give a folder "
                    "like results/run_YYYYMMDD_HHMMSS",
                    folder.string()));
  return RunFolderWriter(folder);
}

fs::path RunFolderWriter::point_folder(const std::string& id) const {
  MS_CHECK(is_plain_name(id), "run folder: expected a point's id of letters and digits, got '{}'",
           id.substr(0, 60));
  return path_ / "points" / id;
}

// Where a file of the folder is to be written, with the folders on the way made.
fs::path RunFolderWriter::inside(const std::string& relative_path) const {
  const fs::path target = path_ / relative_path;
  const fs::path below = target.lexically_normal().lexically_relative(path_.lexically_normal());
  MS_CHECK(
      !relative_path.empty() && !below.empty() && *below.begin() != ".." && *below.begin() != ".",
      "run folder: expected a file name inside {}, got '{}'", path_.string(),
      relative_path.substr(0, 60));
  // Before folders are made: those would be made outside.
  fs::path at = path_;
  for (const fs::path& part : below.parent_path()) {
    at /= part;
    struct stat status {};
    const bool is_link = disk().lstat(at.c_str(), status) == 0 && S_ISLNK(status.st_mode);
    if (is_link && !lies_inside(path_, at))
      throw IoError(at.string() +
                    ": leads out of the run folder; nothing is written there: remove the link");
  }
  create_folders(target.parent_path(), Access::Shared);
  return target;
}

fs::path RunFolderWriter::make_point_folder(const std::string& id) const {
  return inside("points/" + point_folder(id).filename().string() + "/status").parent_path();
}

void RunFolderWriter::write_sweep(const std::string& name, const Json& request,
                                  const std::vector<std::string>& axes,
                                  const std::vector<PlannedPoint>& points) {
  SweepHead head;
  head.name = name;
  head.axes = axes;
  head.request = request;
  if (!points.empty()) head.common = points[0].options;
  for (const PlannedPoint& point : points) {
    for (auto option = head.common.begin(); option != head.common.end();) {
      const auto own = point.options.find(option.key());
      const bool is_axis = std::find(axes.begin(), axes.end(), option.key()) != axes.end();
      const bool is_shared = !is_axis && own != point.options.end() && *own == *option;
      option = is_shared ? std::next(option) : head.common.erase(option);
    }
  }
  const Json common = head.common;
  begin_sweep(std::move(head));
  for (PlannedPoint point : points) {
    for (const auto& [key, value] : common.items()) point.options.erase(key);
    sweep_->add(point);
  }
  end_sweep();
}

void RunFolderWriter::begin_sweep(SweepHead head) {
  head.created = timestamp_utc();
  sweep_ = std::make_shared<SweepFileWriter>(path_, head);
}

void RunFolderWriter::add_points(const std::vector<PlannedPoint>& points) {
  MS_CHECK(sweep_ != nullptr, "run folder: expected begin_sweep before points");
  for (const PlannedPoint& point : points) sweep_->add(point);
}

void RunFolderWriter::end_sweep() {
  MS_CHECK(sweep_ != nullptr, "run folder: expected begin_sweep before end_sweep");
  const auto sweep = std::exchange(sweep_, nullptr);
  sweep->finish();
  table_ = nullptr;  // it was read from the grid before
}

void RunFolderWriter::write_environment(const Json& environment) {
  write_file_atomically(path_ / "env.json", to_text(environment));
}

void RunFolderWriter::write_status(const std::string& id, const std::string& status) {
  write_file_atomically(make_point_folder(id) / "status", status + "\n");
}

void RunFolderWriter::write_result(const std::string& id, const Json& result) {
  MS_CHECK(result.is_object() && !result.empty(),
           "run folder: expected a record with a status, got {}", one_line(result).substr(0, 60));
  Json record = result;
  record.erase("digest");
  write_file_atomically(make_point_folder(id) / "result.json", with_digest(to_text(record)));
}

void RunFolderWriter::remove_result(const std::string& id) {
  if (!is_there(point_folder(id))) return;
  const fs::path file = make_point_folder(id) / "result.json";
  if (disk().unlink(file.c_str()) == 0 || errno == ENOENT) return;
  throw IoError(fmt::format("{}: cannot remove an earlier result: {}; check the folder",
                            point_folder(id).string(), std::strerror(errno)));
}

void RunFolderWriter::write_file(const std::string& relative_path, const std::string& bytes) {
  write_file_atomically(inside(relative_path), bytes);
}

RunTable& RunFolderWriter::table() {
  if (table_ == nullptr) table_ = std::make_shared<RunTable>(path_);
  return *table_;
}

void RunFolderWriter::write_index() {
  table().complete_index();
  write_csv();
  table_ = nullptr;  // at the end of a sweep, which may be large
}

void RunFolderWriter::write_csv() {
  const double began = disk().seconds();
  StagedFile file(path_ / "index.csv", StagedFile::OnInterrupt::GoOn);
  std::string waiting;
  const auto flush = [&] {
    file.write(waiting.data(), static_cast<int64_t>(waiting.size()));
    waiting.clear();
  };
  table().write_csv([&](const std::string& row) {
    waiting += row;
    if (waiting.size() > kCsvBytes) flush();
  });
  flush();
  file.finish();
  file.commit();
  csv_written_ = disk().seconds();
  csv_seconds_ = csv_written_ - began;
}

void RunFolderWriter::update_index(const std::string& id) {
  table().add_to_index(load_point(path_, id));
  if (csv_written_ == 0 && table().size() > kManyPoints) {  // of a sweep that goes on
    csv_written_ = disk().seconds();
    csv_seconds_ = kCsvRowSeconds * static_cast<double>(table().size());
  }
  if (disk().seconds() - csv_written_ >= kCsvShare * csv_seconds_) write_csv();
}

std::string options_hash(const Json& options) {
  // FNV-1a over sorted "key=value" lines: stable over platforms, releases and key order. It names
  // folders; nothing trusts it against forgery.
  std::map<std::string, std::string> sorted;
  for (const auto& [key, value] : options.items()) sorted[key] = value.dump();
  uint64_t hash = 1469598103934665603ull;
  for (const auto& [key, value] : sorted) {
    for (const char letter : key + "=" + value + "\n") {
      hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ull;
    }
  }
  return fmt::format("{:016x}", hash);
}

std::string timestamp_utc() {
  return format_time("%Y-%m-%dT%H:%M:%SZ", true);
}

}  // namespace moonshard::records
