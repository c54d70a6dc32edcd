// Whole experiments for Lua: one option table in, one result out.
#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "runtime/comm/world.h"
#include "runtime/experiment/experiment.h"
#include "runtime/launch/program_ranks.h"
#include "runtime/records/writer.h"

namespace moonshard::bindings {
namespace {

sol::object run(const Arguments& args) {
  experiment::ExperimentOptions options;
  const Json table = args.options(1);
  experiment::experiment_schema().assign_all(&options, table);
  if (comm::is_rank()) {
    const int64_t world = comm::rank_environment()->world;
    MS_CHECK(options.nproc == 1 || options.nproc == world,
             "{}: option 'nproc': expected {} or nothing in a job of {} ranks, got {}",
             args.function_name(), world, world, options.nproc);
  } else if (options.nproc > 1) {
    experiment::resolve_experiment(options);  // mistakes are found before any rank starts
    MS_CHECK(options.parallel != "none", "{}: nproc = {} expects parallel = ddp or fsdp, got none",
             args.function_name(), options.nproc);
    return to_lua(args.state(),
                  launch::run_experiment_ranks(table, static_cast<int>(options.nproc)));
  }
  const Json record = experiment::run_experiment(options);
  // Out of memory is a status only in a single process: one of several ranks that continued alone
  // would receive data of the others' next experiment.
  if (comm::is_rank() && record["status"] == "oom")
    throw OutOfMemoryError(record["error"].get<std::string>(),
                           record["bytes_asked"].get<int64_t>());
  return to_lua(args.state(), record);
}

sol::object resolve(const Arguments& args) {
  const Json effective = experiment::resolve_experiment_table(args.options(1));
  sol::table result(args.state(), sol::create);
  result["options"] = to_lua(args.state(), effective);
  result["id"] = records::options_hash(effective);
  return result;
}

sol::object option_names(const Arguments& args) {
  return to_lua(args.state(), experiment::experiment_schema().names());
}

sol::object describe_options(const Arguments& args) {
  const experiment::ExperimentOptions defaults;
  Json list = Json::array();
  for (const Option& option : experiment::experiment_schema().options()) {
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
