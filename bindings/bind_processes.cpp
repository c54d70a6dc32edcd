// Processes for Lua: what a parent starts, and what it does while it waits.
#include <memory>

#include <signal.h>
#include <unistd.h>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/usertype.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/launch/child_process.h"
#include "runtime/launch/file_lock.h"

namespace moonshard::bindings {
namespace {

// Calls a Lua function without arguments. False when it returns false.
bool call_plainly(const sol::object& callback) {
  // A plain call: sol2's protected one looks for its handler among the script's globals.
  lua_State* L = callback.lua_state();
  callback.push(L);
  if (lua_pcall(L, 0, 1, 0) != 0) {
    const char* text = lua_tostring(L, -1);
    const std::string message = text != nullptr ? text : "an error object";
    lua_pop(L, 1);
    throw Error(message);
  }
  const bool said_no = lua_isboolean(L, -1) && lua_toboolean(L, -1) == 0;
  lua_pop(L, 1);
  return !said_no;
}

launch::ProcessRequest read_request(const Arguments& args, const Json& options) {
  launch::ProcessRequest request;
  request.arguments = args.json(1).get<std::vector<std::string>>();
  MS_CHECK(!request.arguments.empty(),
           "{}: expected a program and its arguments, got an empty list", args.function_name());
  request.log = args.path(2, "log file");
  const Json variables = options.value("variables", Json::object());
  for (const auto& [name, value] : variables.items())
    request.variables.emplace_back(name, value.get<std::string>());
  return request;
}

sol::object ended_table(lua_State* L, const launch::ProcessResult& result) {
  static constexpr const char* kEndedBy[] = {"itself", "timeout", "caller"};
  return to_lua(L, Json{{"exit_code", result.exit_code},
                        {"signal", result.signal},
                        {"ended_by", kEndedBy[static_cast<int>(result.ended_by)]},
                        {"text", launch::describe(result)}});
}

sol::object run_program(const Arguments& args) {
  launch::ProcessWatch watch;
  if (!args.missing(3)) {
    watch.keep_going = [callback = args.function(3, "called while waiting")] {
      return call_plainly(callback);
    };
  }
  const Json options = args.options(4);
  watch.timeout_s = options.value("timeout", 0.0);
  watch.stops_on_interrupt = options.value("stops_on_interrupt", true);
  return ended_table(args.state(), launch::run_process(read_request(args, options), watch));
}

// Shared, as sol2 copies what it is given.
struct ChildHandle {
  std::shared_ptr<launch::ChildProcess> process;
};

sol::object start_program(const Arguments& args) {
  const Json options = args.options(3);
  return sol::make_object(args.state(),
                          ChildHandle{std::make_shared<launch::ChildProcess>(
                              read_request(args, options), options.value("timeout", 0.0))});
}

sol::object poll_program(const Arguments& args) {
  const auto result = args.object<ChildHandle>(1, "child").process->poll();
  if (!result) return sol::make_object(args.state(), sol::lua_nil);
  return ended_table(args.state(), *result);
}

// The lock, or a text that says who holds it.
sol::object take_lock(const Arguments& args) {
  std::string holder;
  const auto lock =
      launch::FileLock::try_take(args.path(1, "lock file"), args.text(2, "text"), holder);
  if (lock) return sol::make_object(args.state(), *lock);
  return sol::make_object(args.state(), holder);
}

std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace

void bind_processes(sol::table launch_table) {
  lua_State* L = launch_table.lua_state();
  ObjectType<launch::FileLock> lock(L, "FileLock");
  lock.fields({}, [](const Arguments&) -> sol::object {
    throw UsageError("FileLock: expected launch.unlock(lock), got a field");
  });
  lock.text([](const launch::FileLock&) { return std::string("FileLock"); });
  ObjectType<ChildHandle> child(L, "Child");
  child.fields({}, [](const Arguments&) -> sol::object {
    throw UsageError("Child: expected launch.poll(child) or launch.stop(child), got a field");
  });
  child.text([](const ChildHandle&) { return std::string("Child"); });
  const auto add = [&](const char* name, const char* signature, const char* text, auto function) {
    define(launch_table, "launch", name, signature, text, function);
  };
  add("run",
      "(words, log, on_tick, { timeout, variables, stops_on_interrupt }) -> { exit_code, signal, "
      "ended_by, text }",
      "Runs a program to its end, to its timeout, or until on_tick returns false.", run_program);
  add("start", "(words, log, { timeout, variables }) -> child",
      "Starts a program, to be polled; it ends with its handle.", start_program);
  add("poll", "(child) -> nil or { exit_code, signal, ended_by, text }",
      "How a program ended; nil while it runs.", poll_program);
  add("stop", "(child)", "Asks a program to end; it has 5 s.", [](const Arguments& args) {
    args.object<ChildHandle>(1, "child").process->end(launch::EndedBy::Caller);
  });
  add("lock", "(file, text) -> lock or the holder's text", "Takes a lock that dies with us.",
      take_lock);
  add("unlock", "(lock)", "Gives a lock back.",
      [](const Arguments& args) { args.object<launch::FileLock>(1, "lock").release(); });
  add("gpu_lock_folder", "() -> path", "Folder of the locks of GPUs.",
      [](const Arguments&) { return user_folder().string(); });
  add("sleep", "(seconds)", "Waits; a signal ends it early.", [](const Arguments& args) {
    const double seconds = args.number(1, "seconds");
    MS_CHECK(seconds >= 0 && seconds <= 60, "{}: expected 0 to 60 seconds, got {}",
             args.function_name(), seconds);
    const auto whole = static_cast<time_t>(seconds);
    const timespec time{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
    ::nanosleep(&time, nullptr);
  });
  add("begin_interrupts", "()", "From now on Ctrl-C is counted instead of raising an error.",
      [](const Arguments&) { launch::begin_counting_interrupts(); });
  add("end_interrupts", "()", "Ctrl-C has its old meaning again.",
      [](const Arguments&) { launch::end_counting_interrupts(); });
  add("interrupts", "() -> number", "Presses of Ctrl-C since begin_interrupts; SIGTERM counts 2.",
      [](const Arguments&) { return launch::num_interrupts(); });
  add("repeat_interrupt", "()", "Hands the last counted signal to whoever handled it before.",
      [](const Arguments&) { launch::repeat_interrupt(); });
  add("process_id", "() -> number", "Of this process.",
      [](const Arguments&) { return static_cast<int>(::getpid()); });
  add("is_alive", "(pid) -> boolean", "Whether a process of that number is there.",
      [](const Arguments& args) {
        const auto pid = static_cast<pid_t>(args.integer(1, "pid"));
        return pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM);
      });
  add("note_failed_points", "()",
      "A sweep of this state has points that failed: the program will end with exit code 5.",
      [](const Arguments& args) {
        lua_pushboolean(args.state(), 1);
        lua_setfield(args.state(), LUA_REGISTRYINDEX, kFailedPointsNote);
      });
  add("note_unwritten", "()",
      "A result file could not be written: the program will not end with exit code 0.",
      [](const Arguments& args) {
        lua_pushboolean(args.state(), 1);
        lua_setfield(args.state(), LUA_REGISTRYINDEX, kUnwrittenNote);
      });
  add("has_own_parts", "() -> boolean", "Whether this state has registered an engine or a rule.",
      [](const Arguments& args) {
        lua_getfield(args.state(), LUA_REGISTRYINDEX, kOwnPartsNote);
        const bool has = lua_toboolean(args.state(), -1) != 0;
        lua_pop(args.state(), 1);
        return has;
      });
  add("host_name", "() -> text", "Of this machine.", [](const Arguments&) { return host_name(); });
}

}  // namespace moonshard::bindings
