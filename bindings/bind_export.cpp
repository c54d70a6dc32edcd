// Files in formats of other programs (CSV, TensorBoard), plain files and folders, for the Lua
// library: thin calls on records and base.
#include <algorithm>
#include <filesystem>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/json.h"
#include "runtime/records/csv.h"
#include "runtime/records/reader.h"
#include "runtime/records/tensorboard.h"

namespace moonshard::bindings {
namespace {

// A path below a folder of unknown origin, where something is to be written.
void check_inside(const std::filesystem::path& folder, const std::filesystem::path& path) {
  for (std::filesystem::path at = path; at.native().size() > folder.native().size();
       at = at.parent_path()) {
    std::error_code error;
    if (std::filesystem::is_symlink(at, error) && !records::lies_inside(folder, at))
      throw IoError(at.string() +
                    ": leads out of the run folder; nothing is written there: remove the link");
  }
}

void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  write_file_atomically(path, bytes);
}

// Each event is { tag, step, wall_time, value } or { tag, step, wall_time, text }.
sol::object write_events(const Arguments& args) {
  const std::string path = args.path(1, "file");
  const Json events = args.json(2);
  const double start = events.empty() ? 0.0 : events.at(0).at("wall_time").get<double>();
  records::EventFile file(start);
  for (const Json& event : events) {
    const std::string tag = event.at("tag").get<std::string>();
    const int64_t step = event.at("step").get<int64_t>();
    const double wall_time = event.at("wall_time").get<double>();
    if (event.contains("text"))
      file.add_text(tag, step, event.at("text").get<std::string>(), wall_time);
    else
      file.add_scalar(tag, step, event.at("value").get<double>(), wall_time);
  }
  write_bytes(path, file.bytes());
  return sol::make_object(args.state(), sol::lua_nil);
}

sol::object to_csv(const Arguments& args) {
  records::CsvTable table;
  table.columns = args.json(1).get<std::vector<std::string>>();
  for (const Json& row : args.json(2)) table.rows.push_back(row.get<std::vector<std::string>>());
  return sol::make_object(args.state(), records::to_csv(table));
}

// Names in a folder, sorted; folders end in '/'. Temporary files of writers are left out.
sol::object list_folder(const Arguments& args) {
  const std::string folder = args.path(1, "folder");
  std::vector<std::string> names;
  std::error_code reason;
  for (const auto& entry : std::filesystem::directory_iterator(folder, reason)) {
    std::string name = entry.path().filename().string();
    if (is_temporary_name(name)) continue;
    if (entry.is_directory()) name += '/';
    names.push_back(std::move(name));
  }
  if (reason) throw IoError(fmt::format("{}: cannot be listed: {}", folder, reason.message()));
  std::sort(names.begin(), names.end());
  return to_lua(args.state(), names);
}

}  // namespace

void bind_export(sol::table native) {
  sol::table table(native.lua_state(), sol::create);
  const auto add = [&](const char* name, const char* signature, const char* text, auto function) {
    define(table, "files", name, signature, text, function);
  };
  add("read_json", "(path) -> value", "A JSON file as Lua values.",
      [](const Arguments& args) { return read_json_file(args.path(1, "file")); });
  add("write", "(path, text)", "A file, whole or not at all; missing folders are made.",
      [](const Arguments& args) { write_bytes(args.path(1, "file"), args.text(2, "text")); });
  add("check_inside", "(folder, path)", "Raises where a link on the way leads out of the folder.",
      [](const Arguments& args) { check_inside(args.path(1, "folder"), args.path(2, "path")); });
  add("append_private", "(path, text)", "Adds to a file that its owner alone may read.",
      [](const Arguments& args) { append_private(args.path(1, "file"), args.text(2, "text")); });
  add("list", "(folder) -> list", "Names in a folder, sorted; those of folders end in '/'.",
      list_folder);
  add("write_events", "(path, events)", "A TensorBoard event file.", write_events);
  add("to_csv", "(columns, rows) -> text", "Comma-separated text of texts.", to_csv);
  native["files"] = table;
}

}  // namespace moonshard::bindings
