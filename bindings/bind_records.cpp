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
#include "runtime/records/run_table.h"
#include "runtime/records/schema_json.h"
#include "runtime/records/writer.h"

namespace moonshard::bindings {
namespace {

using records::RunFolderWriter;

// A Lua table without entries comes as a list.
Json object_or_none(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : Json::object();
}

RunFolderWriter& writer(const Arguments& args) {
  return args.object<RunFolderWriter>(1, "run folder");
}

std::vector<records::PlannedPoint> read_points(const Json& list) {
  std::vector<records::PlannedPoint> points;
  for (const Json& entry : list) {
    points.push_back({entry.at("id").get<std::string>(), object_or_none(entry, "options"),
                      string_or(entry, "file", ""), object_or_none(entry, "asked")});
  }
  return points;
}

records::SweepHead read_head(const Json& sweep) {
  records::SweepHead head;
  head.name = string_or(sweep, "name", "");
  // An empty Lua table is no list: a sweep of one point has no axes.
  for (const Json& axis : sweep.at("axes")) head.axes.push_back(axis.get<std::string>());
  head.request = object_or_none(sweep, "request");
  head.common = object_or_none(sweep, "common");
  return head;
}

// Options of another kind than the schema's would make scripts compare texts with numbers.
std::vector<std::string> drop_ill_typed_options(Json& options) {
  static const Json defaults = [] {
    const experiment::ExperimentOptions own;
    return experiment::experiment_schema().to_json(&own);
  }();
  std::vector<std::string> problems;
  for (auto option = options.begin(); option != options.end();) {
    const auto known = defaults.find(option.key());
    const bool fits = known == defaults.end() || option->is_null() ||
                      (known->is_number() && option->is_number()) ||
                      (known->is_string() && option->is_string()) ||
                      (known->is_boolean() && option->is_boolean());
    if (!fits)
      problems.push_back(fmt::format("options.{}: expected a {}, got {}; it is left out",
                                     option.key(), known->type_name(),
                                     one_line(*option).substr(0, 60)));
    option = fits ? std::next(option) : options.erase(option);
  }
  return problems;
}

// A point for scripts: values that they compute with are of the kinds they expect.
Json point_table(records::PointRecord point) {
  std::vector<std::string> problems = records::make_well_typed(point.result);
  for (const std::string& problem : records::make_metrics_well_typed(point.metrics))
    if (std::find(problems.begin(), problems.end(), problem) == problems.end())
      problems.push_back(problem);
  for (const std::string& problem : drop_ill_typed_options(point.options))
    problems.push_back(problem);
  if (!problems.empty() && point.problem.empty())
    point.problem = "points/" + point.id + "/result.json: " + problems.front();
  return {{"id", point.id},           {"status", point.status},
          {"error", point.error},     {"options", point.options},
          {"metrics", point.metrics}, {"own_metrics", point.own_metrics},
          {"result", point.result},   {"has_record", point.has_record},
          {"problem", point.problem}};
}

// ---- a folder without its records ---------------------------------------------------------------

struct Table {
  std::shared_ptr<const records::RunTable> run;
};

const records::RunTable& table_in(const Arguments& args) {
  return *args.object<Table>(1, "table of a run folder").run;
}

size_t point_in(const Arguments& args) {
  const int64_t number = args.integer(2, "number of a point");
  MS_CHECK(number >= 1 && static_cast<size_t>(number) <= table_in(args).size(),
           "{}: expected a point from 1 to {}, got {}", args.function_name(), table_in(args).size(),
           number);
  return static_cast<size_t>(number - 1);
}

Json table_head(const Arguments& args) {
  const records::RunTable& table = table_in(args);
  const records::SweepHead& head = table.head();
  std::vector<std::string> problems = head.problems;
  Json environment = Json::object();
  try {
    const std::filesystem::path file = table.path() / "env.json";
    if (records::lies_inside(table.path(), file)) environment = read_json_file(file);
  } catch (const std::exception& problem) {
    problems.emplace_back(problem.what());
  }
  static constexpr const char* kDigests[] = {"none", "right", "wrong"};
  return {{"path", table.path().string()},
          {"name", head.name},
          {"created", head.created},
          {"axes", head.axes},
          {"request", head.request},
          {"environment", std::move(environment)},
          {"plots", records::plot_names(table.path())},
          {"problems", std::move(problems)},
          {"digest", kDigests[static_cast<int>(head.digest)]},
          {"count", table.size()}};
}

Json table_point(const Arguments& args) {
  const size_t number = point_in(args);
  const records::PlannedPoint planned = table_in(args).planned(number);
  Json table = point_table(table_in(args).summary(number));
  table.erase("result");
  table["asked"] = planned.asked;
  table["file"] = planned.file_name;
  return table;
}

Json table_plan(const Arguments& args) {
  const records::PlannedPoint planned = table_in(args).planned(point_in(args));
  return {{"id", planned.id},
          {"options", planned.options},
          {"asked", planned.asked},
          {"file", planned.file_name}};
}

// Made without JSON: there may be 100,000.
sol::object table_states(const Arguments& args) {
  const records::RunTable& table = table_in(args);
  sol::table states(args.state(), sol::create);
  for (size_t i = 0; i < table.size(); ++i) {
    const auto [status, has_record] = table.status(i);
    states[table.id(i)] = (has_record ? "" : "?") + status;
  }
  return states;
}

// The same in the sweep's order: number, id, status.
sol::object table_points(const Arguments& args) {
  const records::RunTable& table = table_in(args);
  sol::table points(args.state(), sol::create);
  for (size_t i = 0; i < table.size(); ++i) {
    sol::table point(args.state(), sol::create);
    point["number"] = i + 1;
    point["id"] = table.id(i);
    point["status"] = table.status(i).first;
    points[i + 1] = point;
  }
  return points;
}

// What was changed of a folder since it was written; the first few are enough.
Json table_altered(const Arguments& args) {
  constexpr size_t kMostAltered = 5;
  const records::RunTable& table = table_in(args);
  Json list = Json::array();
  for (size_t i = 0; i < table.size() && list.size() < kMostAltered; ++i) {
    std::string what = table.altered(i);
    if (!what.empty()) list.push_back(std::move(what));
  }
  return list;
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

}  // namespace

void bind_records(sol::table native) {
  lua_State* L = native.lua_state();
  ObjectType<RunFolderWriter> folder(L, "RunFolder");
  folder.fields({}, [](const Arguments&) -> sol::object {
    throw UsageError("RunFolder: expected a function of records on it, got a field");
  });
  folder.text([](const RunFolderWriter& run) { return "RunFolder " + run.path().string(); });
  ObjectType<Table> run_table(L, "RunTable");
  run_table.fields({}, [](const Arguments&) -> sol::object {
    throw UsageError("RunTable: expected a function of records on it, got a field");
  });
  run_table.text([](const Table& table) { return "RunTable " + table.run->path().string(); });
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
  add("write_sweep", "(folder, sweep)", "Freezes a grid of points with all their options.",
      [](const Arguments& args) {
        const Json sweep = args.json(2);
        const records::SweepHead head = read_head(sweep);
        writer(args).write_sweep(head.name, head.request, head.axes,
                                 read_points(sweep.at("points")));
      });
  add("begin_sweep", "(folder, head)",
      "Begins to freeze a grid in sweep.json: name, axes, request, options that all points share.",
      [](const Arguments& args) { writer(args).begin_sweep(read_head(args.json(2))); });
  add("add_points", "(folder, points)", "Adds points with their own options to it.",
      [](const Arguments& args) { writer(args).add_points(read_points(args.json(2))); });
  add("end_sweep", "(folder)", "Puts sweep.json in its place.",
      [](const Arguments& args) { writer(args).end_sweep(); });
  add("make_point_folder", "(folder, id) -> text", "The same, made where it is missing.",
      [](const Arguments& args) {
        return writer(args).make_point_folder(args.text(2, "id")).string();
      });
  add("status_word", "(path, id) -> text", "What a point's status file says; \"\" without one.",
      [](const Arguments& args) {
        return records::status_word(args.path(1, "folder"), args.text(2, "id"));
      });
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
  add("table", "(path) -> table", "A run folder without its records.", [](const Arguments& args) {
    return Table{std::make_shared<records::RunTable>(args.path(1, "folder"))};
  });
  add("head", "(table) -> table", "All of it but the points.", table_head);
  add("summary", "(table, number) -> table", "A point without its record.", table_point);
  add("planned", "(table, number) -> table", "A point as sweep.json has it.", table_plan);
  add("states", "(table) -> table",
      "Status of each point by id, with a '?' before it where there is no record.", table_states);
  add("points", "(table) -> list", "Number, id and status of each point, in the sweep's order.",
      table_points);
  add("number", "(table, id) -> number", "The place of a point; nil where there is none.",
      [](const Arguments& args) -> Json {
        const std::optional<size_t> place = table_in(args).find(args.text(2, "id"));
        return place ? Json(*place + 1) : Json();
      });
  add("altered", "(table) -> list", "Records that are not what was written, and how.",
      table_altered);
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
  add("to_json_line", "(value) -> text", "The same on one line.",
      [](const Arguments& args) { return one_line(args.json(1)); });
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

}  // namespace moonshard::bindings
