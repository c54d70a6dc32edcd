// Run folders for the Lua library: thin calls on the records writer and reader.
#include <algorithm>
#include <filesystem>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/usertype.h"
#include "runtime/analysis/rows.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/json.h"
#include "runtime/experiment/experiment.h"
#include "runtime/launch/machine.h"
#include "runtime/records/csv.h"
#include "runtime/records/plot_spec.h"
#include "runtime/records/reader.h"
#include "runtime/records/schema_json.h"
#include "runtime/records/tensorboard.h"
#include "runtime/records/writer.h"

namespace moonshard::bindings {
namespace {

using records::RunFolderWriter;

RunFolderWriter& writer(const Arguments& args) {
  return args.object<RunFolderWriter>(1, "run folder");
}

std::vector<records::PlannedPoint> read_points(const Json& list) {
  std::vector<records::PlannedPoint> points;
  for (const Json& entry : list) {
    points.push_back({entry.at("id").get<std::string>(), entry.at("options"),
                      entry.at("file").get<std::string>(), entry.value("asked", Json::object())});
  }
  return points;
}

sol::object write_sweep(const Arguments& args) {
  const Json sweep = args.json(2);
  std::vector<std::string> axes;  // an empty Lua table is no list: a sweep of one point has none
  for (const Json& axis : sweep.at("axes")) axes.push_back(axis.get<std::string>());
  writer(args).write_sweep(string_or(sweep, "name", ""), sweep.value("request", Json::object()),
                           axes, read_points(sweep.at("points")));
  return sol::make_object(args.state(), sol::lua_nil);
}

Json point_table(const records::PointRecord& point) {
  return {{"id", point.id},           {"status", point.status},   {"error", point.error},
          {"options", point.options}, {"metrics", point.metrics}, {"result", point.result}};
}

// The profiling suites' own result of a good point.
sol::object seed_result(const Arguments& args) {
  const auto point = records::load_point(args.path(1, "folder"), args.text(2, "id"));
  MS_CHECK(point.status == "ok", "{}: expected a point with status ok, got {}",
           args.function_name(), point.status);
  return to_lua(args.state(), experiment::seed_result(point.result));
}

// Adds what the parent knows (log tail, attempts) to a record that the point's process wrote.
sol::object annotate(const Arguments& args) {
  const std::string id = args.text(2, "id");
  Json result = records::load_point(writer(args).path(), id).result;
  result.update(args.json(3));
  writer(args).write_result(id, result);
  return sol::make_object(args.state(), sol::lua_nil);
}

sol::object load(const Arguments& args) {
  const records::RunFolder run = records::load_run_folder(args.path(1, "folder"));
  Json points = Json::array();
  for (const records::PointRecord& point : run.points) points.push_back(point_table(point));
  return to_lua(args.state(), Json{{"path", run.path.string()},
                                   {"name", run.name},
                                   {"created", run.created},
                                   {"axes", run.axes},
                                   {"request", run.request},
                                   {"environment", run.environment},
                                   {"points", std::move(points)},
                                   {"plots", run.plots},
                                   {"problems", run.problems}});
}

// Files in formats of other programs (CSV, TensorBoard), plain files and folders: thin calls on
// records and base.

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

void bind_records(sol::table native) {
  lua_State* L = native.lua_state();
  ObjectType<RunFolderWriter> folder(L, "RunFolder");
  folder.fields({}, [](const Arguments&) -> sol::object {
    throw UsageError("RunFolder: expected a function of records on it, got a field");
  });
  folder.text([](const RunFolderWriter& run) { return "RunFolder " + run.path().string(); });
  sol::table records_table(L, sol::create);
  const auto add = [&](const char* name, const char* signature, const char* text, auto function) {
    define(records_table, "records", name, signature, text, function);
  };
  add("create", "(root, name) -> folder", "Makes root/run_DATE_TIME[_name].",
      [](const Arguments& args) {
        return RunFolderWriter::create(args.path(1, "root"), args.text(2, "name"));
      });
  add("open", "(path) -> folder", "Opens a run folder to go on with it.",
      [](const Arguments& args) { return RunFolderWriter::open(args.path(1, "folder")); });
  add("attach", "(path) -> folder", "The same for the process of one of its points.",
      [](const Arguments& args) { return RunFolderWriter::attach(args.path(1, "folder")); });
  add("write_point", "(folder, id, record)", "A point's tables, then its record: it is done.",
      [](const Arguments& args) {
        const std::string id = args.text(2, "id");
        const Json record = args.json(3);
        for (const auto& [name, text] : records::point_tables(record))
          writer(args).write_file("points/" + id + "/" + name, text);
        writer(args).write_result(id, record);
      });
  add("path", "(folder) -> text", "Where it lies.",
      [](const Arguments& args) { return writer(args).path().string(); });
  add("point_folder", "(folder, id) -> text", "Folder of one point.",
      [](const Arguments& args) { return writer(args).point_folder(args.text(2, "id")).string(); });
  add("write_sweep", "(folder, sweep)", "Freezes the grid in sweep.json.", write_sweep);
  add("write_environment", "(folder[, table])", "env.json: this machine, or a table.",
      [](const Arguments& args) {
        writer(args).write_environment(args.missing(2) ? launch::describe_machine() : args.json(2));
      });
  add("write_status", "(folder, id, word)", "A point's status.", [](const Arguments& args) {
    writer(args).write_status(args.text(2, "id"), args.text(3, "status"));
  });
  add("write_result", "(folder, id, record)", "A point's record.",
      [](const Arguments& args) { writer(args).write_result(args.text(2, "id"), args.json(3)); });
  add("annotate", "(folder, id, table)", "Adds keys to a point's record.", annotate);
  add("remove_result", "(folder, id)", "Forgets an earlier attempt's record.",
      [](const Arguments& args) { writer(args).remove_result(args.text(2, "id")); });
  add("write_index", "(folder)", "index.csv.",
      [](const Arguments& args) { writer(args).write_index(); });
  add("update_index", "(folder, id)", "index.csv after one point has changed.",
      [](const Arguments& args) { writer(args).update_index(args.text(2, "id")); });
  add("write_file", "(folder, name, text)", "Any other file, whole or not at all.",
      [](const Arguments& args) {
        writer(args).write_file(args.text(2, "name"), args.text(3, "text"));
      });
  add("write_plot", "(folder, name, spec)",
      "visualizations/NAME.plot.json, after checking that it can be drawn.",
      [](const Arguments& args) {
        const std::string name = args.path(2, "name");
        const records::PlotSpec spec =
            records::plot_spec_from_json(args.json(3), "plot '" + name + "'");
        writer(args).write_file("visualizations/" + name + ".plot.json",
                                to_text(records::to_json(spec)));
      });
  add("load", "(path) -> table", "All that lies in a run folder.", load);
  add("load_point", "(path, id) -> table", "One point as it is now.", [](const Arguments& args) {
    return Json(point_table(records::load_point(args.path(1, "folder"), args.text(2, "id"))));
  });
  add("seed_result", "(path, id) -> table", "The profiling suites' result of a good point.",
      seed_result);
  add("read_json", "(path) -> value", "A JSON file.",
      [](const Arguments& args) { return read_json_file(args.path(1, "file")); });
  add("log_tail", "(path, id, bytes) -> text", "The end of a point's log.",
      [](const Arguments& args) {
        return records::read_log_tail(args.path(1, "folder"), args.text(2, "id"),
                                      static_cast<size_t>(args.integer(3, "bytes")));
      });
  add("parse_json", "(text) -> value", "The value of JSON text.",
      [](const Arguments& args) { return parse_json(args.text(1, "text"), "records.parse_json"); });
  add("options_hash", "(options) -> text", "The id of a point of these options.",
      [](const Arguments& args) { return records::options_hash(args.json(1)); });
  add("to_json", "(value) -> text", "JSON text of a value.",
      [](const Arguments& args) { return to_text(args.json(1)); });
  add("summarize", "(numbers) -> table", "count, mean, median, min, max, p95, iqr.",
      [](const Arguments& args) {
        return records::json_of(analysis::summarize(args.json(1).get<std::vector<double>>()));
      });
  add("fields", "() -> list", "Every field of a result: path, key, unit, doc.",
      [](const Arguments&) {
        Json list = Json::array();
        for (const records::FieldInfo& field : records::result_fields())
          list.push_back({{"path", field.path},
                          {"key", field.key},
                          {"unit", records::unit_name(field.unit)},
                          {"doc", field.doc}});
        return list;
      });
  native["records"] = records_table;
  // Stands for JSON's null in lists, where Lua's nil would be a hole.
  native["null"] = sol::lightuserdata_value(nullptr);
}

void bind_export(sol::table native) {
  sol::table table(native.lua_state(), sol::create);
  const auto add = [&](const char* name, const char* signature, const char* text, auto function) {
    define(table, "files", name, signature, text, function);
  };
  add("read_json", "(path) -> value", "A JSON file as Lua values.",
      [](const Arguments& args) { return read_json_file(args.path(1, "file")); });
  add("write", "(path, text)", "A file, whole or not at all; missing folders are made.",
      [](const Arguments& args) { write_bytes(args.path(1, "file"), args.text(2, "text")); });
  add("append_private", "(path, text)", "Adds to a file that its owner alone may read.",
      [](const Arguments& args) { append_private(args.path(1, "file"), args.text(2, "text")); });
  add("list", "(folder) -> list", "Names in a folder, sorted; those of folders end in '/'.",
      list_folder);
  add("write_events", "(path, events)", "A TensorBoard event file.", write_events);
  add("to_csv", "(columns, rows) -> text", "Comma-separated text of texts.", to_csv);
  native["files"] = table;
}

}  // namespace moonshard::bindings
