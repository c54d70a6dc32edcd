#include "runtime/records/writer.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <map>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/records/reader.h"

namespace moonshard::records {
namespace {

namespace fs = std::filesystem;

std::string format_time(const char* format, bool utc) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  utc ? gmtime_r(&now, &parts) : localtime_r(&now, &parts);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, format, &parts));
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw IoError(fmt::format("{}: cannot make the folder: {}; choose another 'out' folder",
                              folder.string(), error.message()));
  }
}

}  // namespace

RunFolderWriter RunFolderWriter::create(const fs::path& root, const std::string& name) {
  MS_CHECK(name.empty() || is_plain_name(name),
           "run folder: expected a name of up to 64 letters, digits, '_' and '-', got '{}'",
           name.substr(0, 60));
  make_folder(root);
  const std::string base =
      "run_" + format_time("%Y%m%d_%H%M%S", false) + (name.empty() ? "" : "_" + name);
  for (int attempt = 1; attempt < 1000; ++attempt) {
    const fs::path folder = root / (attempt == 1 ? base : fmt::format("{}-{}", base, attempt));
    std::error_code error;
    if (fs::create_directory(folder, error)) return RunFolderWriter(folder);
    if (error) {
      throw IoError(fmt::format("{}: cannot make the folder: {}; choose another 'out' folder",
                                folder.string(), error.message()));
    }
  }
  throw IoError(fmt::format("{}: a thousand runs in one second", (root / base).string()));
}

RunFolderWriter RunFolderWriter::open(const fs::path& folder) {
  load_run_folder(folder);  // throws unless it is one
  RunFolderWriter writer(folder);
  sweep_stale_temporaries(folder);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "points", error)) {
    if (entry.is_directory()) sweep_stale_temporaries(entry.path());
  }
  sweep_stale_temporaries(folder / "visualizations");
  return writer;
}

RunFolderWriter RunFolderWriter::attach(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / "sweep.json", error))
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

void RunFolderWriter::write_sweep(const std::string& name, const Json& request,
                                  const std::vector<std::string>& axes,
                                  const std::vector<PlannedPoint>& points) {
  Json list = Json::array();
  for (const PlannedPoint& point : points) {
    list.push_back(Json{{"id", point.id},
                        {"file", point.file_name},
                        {"asked", point.asked},
                        {"options", point.options}});
  }
  const Json sweep{{"schema_version", kSchemaVersion},
                   {"name", name},
                   {"created", timestamp_utc()},
                   {"request", request},
                   {"axes", axes},
                   {"points", std::move(list)}};
  write_file_atomically(path_ / "sweep.json", to_text(sweep));
}

void RunFolderWriter::write_environment(const Json& environment) {
  write_file_atomically(path_ / "env.json", to_text(environment));
}

void RunFolderWriter::write_status(const std::string& id, const std::string& status) {
  make_folder(point_folder(id));
  write_file_atomically(point_folder(id) / "status", status + "\n");
}

void RunFolderWriter::write_result(const std::string& id, const Json& result) {
  make_folder(point_folder(id));
  write_file_atomically(point_folder(id) / "result.json", to_text(result));
}

void RunFolderWriter::remove_result(const std::string& id) {
  std::error_code error;
  fs::remove(point_folder(id) / "result.json", error);
  if (error) {
    throw IoError(fmt::format("{}: cannot remove an earlier result: {}; check the folder",
                              point_folder(id).string(), error.message()));
  }
}

void RunFolderWriter::write_file(const std::string& relative_path, const std::string& bytes) {
  const fs::path target = path_ / relative_path;
  const fs::path below = target.lexically_normal().lexically_relative(path_.lexically_normal());
  MS_CHECK(
      !relative_path.empty() && !below.empty() && *below.begin() != ".." && *below.begin() != ".",
      "run folder: expected a file name inside {}, got '{}'", path_.string(),
      relative_path.substr(0, 60));
  make_folder(target.parent_path());
  write_file_atomically(target, bytes);
}

void RunFolderWriter::write_index() {
  index_ = std::make_shared<RunIndex>(load_run_folder(path_));
  write_file_atomically(path_ / "index.csv", index_->csv());
}

void RunFolderWriter::update_index(const std::string& id) {
  if (index_ == nullptr) return write_index();
  index_->update(load_point(path_, id));
  write_file_atomically(path_ / "index.csv", index_->csv());
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
