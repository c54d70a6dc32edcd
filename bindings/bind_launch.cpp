// Experiments, GPUs, memory and the machine for Lua.
#include <chrono>
#include <thread>

#include <signal.h>
#include <unistd.h>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/lua_error.h"
#include "bindings/tensor_handle.h"
#include "bindings/usertype.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/base/interrupt.h"
#include "runtime/comm/world.h"
#include "runtime/experiment/experiment.h"
#include "runtime/launch/file_lock.h"
#include "runtime/launch/machine.h"
#include "runtime/launch/process.h"
#include "runtime/launch/program_ranks.h"
#include "runtime/profile/memory.h"
#include "runtime/records/schema_json.h"
#include "runtime/records/writer.h"

namespace moonshard::bindings {
namespace {

Json gpu_row(const profile::Gpu& gpu) {
  Json processes = Json::array();
  for (const profile::GpuProcess& process : gpu.processes) {
    Json row{{"pid", process.pid}, {"name", process.name}};
    if (process.bytes) row["bytes"] = *process.bytes;
    processes.push_back(std::move(row));
  }
  Json row{{"index", gpu.index},
           {"uuid", gpu.uuid},
           {"name", gpu.name},
           {"memory_total_bytes", gpu.memory_total_bytes},
           {"memory_used_bytes", gpu.memory_used_bytes},
           {"processes", std::move(processes)}};
  if (gpu.utilization_percent) row["utilization_percent"] = *gpu.utilization_percent;
  return row;
}

sol::object gpus(const Arguments& args) {
  const profile::GpuListing listing = launch::usable_gpus();
  Json list = Json::array();
  for (const profile::Gpu& gpu : listing.gpus) list.push_back(gpu_row(gpu));
  return to_lua(args.state(), Json{{"gpus", std::move(list)}, {"absence", listing.absence}});
}

// ms.resolve for a parent that must not touch CUDA: NVML tells whether there is a GPU; whether
// there is one of that number is left to the child. Only words that may mean one are taken out of
// the schema's hands; it refuses all that is no device.
sol::object plan_point(const Arguments& args) {
  static const bool has_gpu = !launch::usable_gpus().gpus.empty();
  Json table = args.options(1);
  const Json device = table.value("device", Json("auto"));
  const std::string word = device.is_string() ? device.get<std::string>() : "";
  const bool is_number = word.size() > 5 && word.starts_with("cuda:") &&
                         word.find_first_not_of("0123456789", 5) == std::string::npos;
  const bool names_gpu = word == "cuda" || is_number, leaves_it = word == "auto";
  if (names_gpu || leaves_it) table["device"] = "cpu";
  Json effective = experiment::resolve_experiment_table(table);
  if (names_gpu || (leaves_it && has_gpu)) effective["device"] = "cuda";
  sol::table result(args.state(), sol::create);
  result["id"] = records::options_hash(effective);
  result["options"] = to_lua(args.state(), effective);
  return result;
}

bool file_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

sol::object memory(const Arguments& args) {
  const auto host = profile::read_memory(c10::Device(c10::kCPU));
  Json table{{"cpu_allocated_bytes", host.allocated_bytes},
             {"cpu_max_allocated_bytes", host.max_allocated_bytes},
             {"rss_bytes", host.rss_bytes},
             {"lua_tensor_bytes", live_tensor_bytes()},
             {"lua_heap_bytes", static_cast<int64_t>(lua_gc(args.state(), LUA_GCCOUNT, 0)) * 1024}};
  return to_lua(args.state(), table);
}

// Whole experiments for Lua: one option table in, one result out.

// A line on a terminal that tells how far a run is; gone when the run ends.
class StepLine {
 public:
  explicit StepLine(int64_t total) : total_(total), shown_(::isatty(2) != 0 && !comm::is_rank()) {}
  ~StepLine() {
    if (drawn_) fmt::print(stderr, "\r\033[K");
  }
  StepLine(const StepLine&) = delete;
  StepLine& operator=(const StepLine&) = delete;
  void show(const train::StepReport& report, bool is_warmup) {
    ++done_;
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || (drawn_ && now - last_ < std::chrono::milliseconds(100))) return;
    last_ = now;
    drawn_ = true;
    fmt::print(stderr, "\r\033[Kms.run: step {} of {}{}, loss {:.4f}, {:.1f} ms", done_, total_,
               is_warmup ? " (warm-up)" : "", report.loss, report.time_ms);
    std::fflush(stderr);
  }

 private:
  int64_t total_, done_ = 0;
  bool shown_, drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

constexpr const char* kInterruptedRun = "moonshard.interrupted_run";

// What ms.last_run() gives: the record of a run that Ctrl-C ended, as text.
void keep_interrupted(lua_State* L, const Json& record) {
  const std::string text = record.dump();
  lua_pushlstring(L, text.data(), text.size());
  lua_setfield(L, LUA_REGISTRYINDEX, kInterruptedRun);
}

sol::object last_run(const Arguments& args) {
  lua_State* L = args.state();
  lua_getfield(L, LUA_REGISTRYINDEX, kInterruptedRun);
  size_t length = 0;
  const char* text = lua_tolstring(L, -1, &length);
  const Json record = text == nullptr ? Json() : Json::parse(std::string(text, length));
  lua_pop(L, 1);
  MS_CHECK(record.is_object(),
           "{}: expected a call of ms.run that was interrupted after its first step, got none",
           args.function_name());
  return to_lua(L, record);
}

Json run_here(const Arguments& args, const experiment::ExperimentOptions& options) {
  const experiment::ExperimentOptions resolved = experiment::resolve_experiment(options);
  StepLine line(resolved.warmup + resolved.iters);
  try {
    return experiment::run_experiment(
        options,
        [&](const train::StepReport& report, bool is_warmup) { line.show(report, is_warmup); });
  } catch (const experiment::InterruptedExperiment& stopped) {
    keep_interrupted(args.state(), records::json_of(stopped.record));
    throw experiment::InterruptedExperiment(
        fmt::format("{}; ms.last_run() has their record", stopped.what()), stopped.record);
  }
}

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
  const Json record = run_here(args, options);
  // Out of memory is a status only in a single process: one of several ranks that continued alone
  // would receive data of the others' next experiment.
  if (comm::is_rank() && record["status"] == "oom")
    throw OutOfMemoryError(record["error"].get<std::string>(),
                           record["bytes_asked"].get<int64_t>());
  return to_lua(args.state(), record);
}

// The same for a point of a sweep in a script's process: steps go to its log, files to its folder.
sol::object run_point(const Arguments& args) {
  experiment::ExperimentOptions options;
  experiment::experiment_schema().assign_all(&options, args.options(1));
  const auto tell = [](const train::StepReport& report, bool is_warmup) {
    fmt::print("step {}{}: loss {:.4f}, {:.2f} ms\n", report.step, is_warmup ? " (warm-up)" : "",
               report.loss, report.time_ms);
    std::fflush(stdout);
  };
  return to_lua(args.state(),
                experiment::run_experiment(options, tell, {args.path(2, "the point's folder")}));
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

void bind_launch(sol::table ms, sol::table native) {
  define(ms, "ms", "memory", "() -> table",
         "Bytes held now: by host tensors (with their peak), by this process, by Lua.", memory);
  define(ms, "ms", "machine", "() -> table",
         "This machine and program: versions, CPU, memory, GPUs.",
         [](const Arguments&) { return launch::describe_machine(); });
  define(ms, "ms", "gpus", "() -> { gpus, absence }",
         "GPUs as the driver sees them: name, memory, utilisation, processes. Makes no CUDA "
         "context; absence says why there are none.",
         gpus);
  ms["version"] = launch::version();
  ms["libtorch_version"] = launch::libtorch_version();

  sol::table launch_table(native.lua_state(), sol::create);
  const auto add = [&](const char* name, const char* signature, const char* text, auto function) {
    define(launch_table, "launch", name, signature, text, function);
  };
  add("plan_point", "{ options } -> { options, id }",
      "Effective options and id of an experiment that a child will run; touches no GPU.",
      plan_point);
  bind_processes(launch_table);
  add("program", "(name) -> path", "A program that lies beside this one.",
      [](const Arguments& args) { return launch::sibling_program(args.text(1, "name")).string(); });
  add("program_as_typed", "() -> text", "What starts this program from here: a name or a path.",
      [](const Arguments&) { return launch::program_as_typed(); });
  add("shared_files", "() -> path", "Folder of scripts and fonts.",
      [](const Arguments&) { return launch::shared_files().string(); });
  add("clock", "() -> seconds", "Monotonic time.", [](const Arguments&) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  });
  add("is_terminal", "() -> boolean", "Whether standard output is a terminal.",
      [](const Arguments&) { return ::isatty(1) != 0; });
  add("exists", "(path) -> boolean", "Whether a file is there.",
      [](const Arguments& args) { return file_exists(args.path(1, "path")); });
  add("is_out_of_memory", "(error) -> boolean", "Whether an error's text says that memory ran out.",
      [](const Arguments& args) {
        return memory_outcome(args.text(1, "error")) != MemoryOutcome::Other;
      });
  add("interrupted", "() -> boolean", "Whether the user asked to stop.",
      [](const Arguments&) { return interrupt_requested(); });
  native["launch"] = launch_table;
}

void bind_experiment(sol::table ms, sol::table native) {
  define(native, "native", "nearest", "(name, candidates) -> text or nil",
         "The candidate nearest to a misspelt name.", nearest);
  define(native, "native", "run_point", "({ options }, folder) -> result",
         "Runs an experiment whose files belong into a folder.", run_point);
  define(ms, "ms", "run", "{ model, mode, batch_size, … } -> result",
         "Runs one experiment here and returns its record. Out of memory is a status, not an "
         "error. ms.options() lists all options. Ctrl-C raises an error; ms.last_run() has the "
         "steps until then.",
         run);
  define(ms, "ms", "last_run", "() -> result",
         "The record of the last ms.run that was interrupted: status interrupted, its steps and "
         "what they measured.",
         last_run);
  document_options<experiment::ExperimentOptions>("ms.run", experiment::experiment_schema());
  define(ms, "ms", "resolve", "{ options } -> { options, id }",
         "Checks options without running: the effective ones, and the id that names them.",
         resolve);
  define(ms, "ms", "option_names", "() -> list", "Names of all experiment options.", option_names);
  define(ms, "ms", "options", "() -> list",
         "All experiment options with type, default and meaning.", describe_options);
}

}  // namespace moonshard::bindings
