// Processes, memory and the machine for Lua.
#include <unistd.h>

#include <chrono>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/tensor_handle.h"
#include "runtime/core/device.h"
#include "runtime/core/interrupt.h"
#include "runtime/launch/machine.h"
#include "runtime/launch/process.h"
#include "runtime/profile/memory.h"

namespace moonshard::bindings {
namespace {

sol::object run_program(const Arguments& args) {
  const std::vector<std::string> words = args.json(1).get<std::vector<std::string>>();
  MS_CHECK(!words.empty(), "{}: expected a program and its arguments, got an empty list",
           args.function_name());
  const std::string log = args.path(2, "log file");
  std::function<void()> on_tick;
  if (!args.missing(3)) {
    on_tick = [callback = args.function(3, "called while waiting")] {
      // A plain call: sol2's protected one looks for its handler among the script's globals.
      lua_State* L = callback.lua_state();
      callback.push(L);
      if (lua_pcall(L, 0, 0, 0) == 0) return;
      const char* text = lua_tostring(L, -1);
      const std::string message = text != nullptr ? text : "an error object";
      lua_pop(L, 1);
      throw Error(message);
    };
  }
  const launch::ProcessResult result = launch::run_process(words, log, on_tick);
  return to_lua(args.state(), Json{{"exit_code", result.exit_code},
                                   {"signal", result.signal},
                                   {"text", launch::describe(result)}});
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

}  // namespace

void bind_launch(sol::table ms, sol::table native) {
  define(ms, "ms", "memory", "() -> table",
         "Bytes held now: by host tensors (with their peak), by this process, by Lua.", memory);
  define(ms, "ms", "machine", "() -> table",
         "This machine and program: versions, CPU, memory, GPUs.",
         [](const Arguments& args) { return to_lua(args.state(), launch::describe_machine()); });
  ms["version"] = launch::version();
  ms["libtorch_version"] = launch::libtorch_version();

  sol::table launch_table(native.lua_state(), sol::create);
  const auto add = [&](const char* name, const char* signature, const char* text, auto function) {
    define(launch_table, "launch", name, signature, text, function);
  };
  add("run", "(words, log, on_tick) -> { exit_code, signal, text }", "Runs a program to its end.",
      run_program);
  add("program", "(name) -> path", "A program that lies beside this one.",
      [](const Arguments& args) {
        return sol::make_object(args.state(),
                                launch::sibling_program(args.text(1, "name")).string());
      });
  add("shared_files", "() -> path", "Folder of scripts and fonts.", [](const Arguments& args) {
    return sol::make_object(args.state(), launch::shared_files().string());
  });
  add("clock", "() -> seconds", "Monotonic time.", [](const Arguments& args) {
    return sol::make_object(
        args.state(),
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
  });
  add("is_terminal", "() -> boolean", "Whether standard output is a terminal.",
      [](const Arguments& args) { return sol::make_object(args.state(), ::isatty(1) != 0); });
  add("exists", "(path) -> boolean", "Whether a file is there.", [](const Arguments& args) {
    return sol::make_object(args.state(), file_exists(args.path(1, "path")));
  });
  add("interrupted", "() -> boolean", "Whether the user asked to stop.",
      [](const Arguments& args) { return sol::make_object(args.state(), interrupt_requested()); });
  native["launch"] = launch_table;
}

}  // namespace moonshard::bindings
