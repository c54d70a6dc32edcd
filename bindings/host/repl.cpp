// The loop: read lines until an entry is complete, remember it, run it.
#include "bindings/host/repl.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include <luajit.h>
#include <unistd.h>

#include "bindings/host/history_file.h"
#include "bindings/host/line_editor.h"
#include "bindings/host/repl_server.h"
#include "bindings/host/repl_session.h"
#include "runtime/base/interrupt.h"

namespace moonshard::host {
namespace {

constexpr char kPrompt[] = "ms> ";
constexpr char kContinuation[] = ".. ";
constexpr int kExitInterrupted = 130;

// LuaJIT runs no hooks inside compiled traces, so Ctrl-C could not stop a compiled loop. At a
// prompt that matters more than the speed of Lua loops (tensor work is native anyway); `%jit on`
// undoes it. Traces made before the prompt are flushed for the same reason.
void turn_jit_off(lua_State* L) {
  luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
  luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_FLUSH);
}

std::string from_environment(const char* variable, const char* xdg_variable,
                             const char* home_folder, const char* name) {
  if (const char* path = std::getenv(variable)) return path;
  if (const char* folder = std::getenv(xdg_variable); folder && *folder) {
    return std::string(folder) + "/moonshard/" + name;
  }
  const char* home = std::getenv("HOME");
  if (!home || !*home) return {};
  return std::string(home) + "/" + home_folder + "/moonshard/" + name;
}

extern "C" void ignore_signal(int) {}

// Between an entry and the next prompt Ctrl-C has nothing to stop, and must not end the program. A
// handler rather than SIG_IGN, because programs started from here would inherit the latter.
class IgnoreInterrupt {
 public:
  explicit IgnoreInterrupt(bool wanted) : wanted_(wanted) {
    if (!wanted_) return;
    struct sigaction action = {};
    action.sa_handler = ignore_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, &previous_);
  }
  ~IgnoreInterrupt() {
    if (wanted_) sigaction(SIGINT, &previous_, nullptr);
  }
  IgnoreInterrupt(const IgnoreInterrupt&) = delete;
  IgnoreInterrupt& operator=(const IgnoreInterrupt&) = delete;

 private:
  bool wanted_;
  struct sigaction previous_ = {};
};

class Repl {
 public:
  Repl(lua_State* L, const ReplOptions& options)
      : options_(options),
        history_(options.interactive ? options.history_file : std::string()),
        entries_(history_.load()),
        session_(L, &entries_),
        editor_(make_line_editor(options.interactive, [this](const std::string& before_cursor) {
          return session_.complete(pending_ + before_cursor);
        })) {
    for (const std::string& entry : entries_) editor_->remember(entry);
  }

  int run() {
    if (!session_.is_open()) {
      std::fprintf(stderr, "repl: cannot load 'moonshard.repl' (scripts folder: %s): %s\n",
                   options_.scripts_dir.c_str(), session_.problem().c_str());
      return 1;
    }
    if (options_.interactive) std::printf("%s\n", session_.banner().c_str());
    if (!options_.startup_file.empty()) note(session_.run_file(options_.startup_file));
    while (step()) {
    }
    return exit_code_;
  }

 private:
  // Reads one line and does what it asks for; false when the session is over.
  bool step() {
    clear_interrupt();
    std::fflush(stdout);
    ReadResult line = editor_->read(pending_.empty() ? kPrompt : kContinuation);
    switch (line.status) {
      case ReadStatus::Interrupted:
        pending_.clear();
        return true;
      case ReadStatus::EndOfInput:
        // A pipe that ends inside a block is an error worth its message; at a prompt it is Ctrl-D.
        if (!options_.interactive && !pending_.empty()) run_pending();
        return false;
      case ReadStatus::Line:
        break;
    }
    pending_ += line.text;
    if (session_.is_complete(pending_)) return run_pending();
    pending_ += '\n';
    return true;
  }

  bool run_pending() {
    const std::string entry = std::exchange(pending_, {});
    if (entry.find_first_not_of(" \t\r\n") == std::string::npos) return true;
    remember(entry);
    const Outcome outcome = session_.run(entry);
    note(outcome);
    if (!options_.interactive && last_call_was_interrupted()) {
      exit_code_ = kExitInterrupted;  // not interactive
      return false;
    }
    return outcome != Outcome::Exit;
  }

  // Before the entry runs, so that it survives whatever the entry does to the process.
  void remember(const std::string& entry) {
    if (!entries_.empty() && entries_.back() == entry) return;
    entries_.push_back(entry);
    editor_->remember(entry);
    if (!history_.append(entry) && !std::exchange(history_failed_, true)) {
      std::fprintf(stderr,
                   "repl: cannot write the history file '%s'; history ends with the session\n",
                   options_.history_file.c_str());
    }
  }

  void note(Outcome outcome) {
    if (outcome == Outcome::Failed && !options_.interactive) exit_code_ = 1;
  }

  const ReplOptions& options_;
  HistoryFile history_;
  std::vector<std::string> entries_;
  std::string pending_;  ///< lines of an entry that is not complete yet
  ReplSession session_;
  std::unique_ptr<LineEditor> editor_;
  bool history_failed_ = false;
  int exit_code_ = 0;
};

}  // namespace

ReplOptions default_repl_options(const std::string& scripts_dir) {
  ReplOptions options;
  options.scripts_dir = scripts_dir;
  options.interactive = ::isatty(STDIN_FILENO) == 1;
  if (!options.interactive) return options;
  options.history_file =
      from_environment("MOONSHARD_HISTORY", "XDG_STATE_HOME", ".local/state", "history");
  options.startup_file =
      from_environment("MOONSHARD_STARTUP", "XDG_CONFIG_HOME", ".config", "startup.lua");
  return options;
}

int run_repl(lua_State* L, const ReplOptions& options) {
  const bool must_stop = options.interactive || options.json;
  const IgnoreInterrupt ignore_interrupt(must_stop);
  if (must_stop) turn_jit_off(L);
  if (options.json) return serve_repl(L, options);
  return Repl(L, options).run();
}

}  // namespace moonshard::host
