// Whole experiments for Lua: one option table in, one result out.
#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "runtime/records/writer.h"
#include "runtime/train/experiment.h"

namespace moonshard::bindings {
namespace {

sol::object run(const Arguments& args) {
  train::ExperimentOptions options;
  train::experiment_schema().assign_all(&options, args.options(1));
  return to_lua(args.state(), train::run_experiment(options));
}

sol::object resolve(const Arguments& args) {
  const Json effective = train::resolve_experiment_table(args.options(1));
  sol::table result(args.state(), sol::create);
  result["options"] = to_lua(args.state(), effective);
  result["id"] = records::options_hash(effective);
  return result;
}

sol::object option_names(const Arguments& args) {
  return to_lua(args.state(), train::experiment_schema().names());
}

sol::object describe_options(const Arguments& args) {
  const train::ExperimentOptions defaults;
  Json list = Json::array();
  for (const Option& option : train::experiment_schema().options()) {
    list.push_back({{"name", option.name},
                    {"type", describe_type(option)},
                    {"default", option.read(&defaults)},
                    {"aliases", option.aliases},
                    {"doc", option.doc}});
  }
  return to_lua(args.state(), list);
}

sol::object nearest(const Arguments& args) {
  const std::string found =
      nearest_name(args.text(1, "name"), args.json(2).get<std::vector<std::string>>());
  if (found.empty()) return sol::make_object(args.state(), sol::lua_nil);
  return sol::make_object(args.state(), found);
}

}  // namespace

void bind_experiment(sol::table ms, sol::table native) {
  define(native, "native", "nearest", "(name, candidates) -> text or nil",
         "The candidate nearest to a misspelt name.", nearest);
  define(ms, "ms", "run", "{ model, mode, batch_size, … } -> result",
         "Runs one experiment here and returns its record. Out of memory is a status, not an "
         "error. ms.options() lists all options.",
         run);
  define(ms, "ms", "resolve", "{ options } -> { options, id }",
         "Checks options without running: the effective ones, and the id that names them.",
         resolve);
  define(ms, "ms", "option_names", "() -> list", "Names of all experiment options.", option_names);
  define(ms, "ms", "options", "() -> list",
         "All experiment options with type, default and meaning.", describe_options);
}

}  // namespace moonshard::bindings
