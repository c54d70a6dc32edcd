// One experiment in its own process: isolated memory, a log file, and no orphan left behind.
// Several such processes as one job are in ranks.h.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace moonshard::launch {

enum class EndedBy { Itself, Timeout, Caller };

struct ProcessResult {
  int exit_code = 0;  ///< of a process that ended by itself
  int signal = 0;     ///< that ended it; 0 when none did
  EndedBy ended_by = EndedBy::Itself;
};

struct ProcessRequest {
  std::vector<std::string> arguments;  ///< the program's path first
  /// Output is appended there and input is empty. Without a log the child inherits all three; but
  /// input is empty if it is a terminal: reading from it would stop a process of another group.
  std::filesystem::path log;
  std::vector<std::pair<std::string, std::string>> variables;  ///< added to our environment
  int input = -1, output = -1, errors = -1;  ///< descriptors to use instead, without a log
  bool is_ours = true;  ///< else it does not call die_with_parent, nor does what it starts
};

/// Starts a process as the leader of its own process group. It should call die_with_parent, which
/// is bound to the thread that called this. Throws IoError.
pid_t start_process(const ProcessRequest& request);

/// The child's result, if it has ended. It is not reaped: until it is waited for, its pid is not
/// reused.
std::optional<ProcessResult> peek_end(pid_t child);

struct ProcessWatch {
  std::function<bool()> keep_going;  ///< asked about ten times a second; false ends the process
  double timeout_s = 0;              ///< 0 means none
  bool stops_on_interrupt = true;    ///< else keep_going must handle interrupts
};

/// Runs a program to its end, or until the watch stops it: then the group gets SIGTERM, after 5 s
/// SIGKILL, and the result says who ended it. A Ctrl-C at the terminal reaches only us; where the
/// watch stops on an interrupt, the group is ended and Interrupted is thrown.
ProcessResult run_process(const ProcessRequest& request, const ProcessWatch& watch);

/// The same with output appended to a log file, empty input, and no way to stop it but an
/// interrupt.
ProcessResult run_process(const std::vector<std::string>& arguments,
                          const std::filesystem::path& log, const std::function<void()>& on_tick);

/// For the child: dies when its parent does, however that ended. Does nothing in a process that was
/// not started by start_process. Call it first: programs that the child starts must not see the
/// variable that it reads.
void die_with_parent();

/// "exit code 1" or "signal 9 (Killed)".
std::string describe(const ProcessResult& result);

/// A path of this program to type or to start it again: relative where that is shorter.
std::string program_path();
/// The same for a line to type: the bare name where the shell finds this very program by it.
std::string program_as_typed();

/// <prefix>/bin/NAME
std::filesystem::path sibling_program(const std::string& name);

/// <prefix>/share/moonshard
std::filesystem::path shared_files();

// Counts Ctrl-C instead of raising an error: for work that stops in stages. The first press may
// mean "after this point", the second "now". SIGTERM and SIGHUP mean "now".

/// From now on SIGINT, SIGTERM and SIGHUP are counted; previous handlers do not see them. A signal
/// that was ignored stays ignored. Calls nest; only the outermost counts from zero.
void begin_counting_interrupts();

/// Restores the previous handlers.
void end_counting_interrupts();

/// Presses of Ctrl-C so far; 2 or more after a SIGTERM or SIGHUP.
int num_interrupts() noexcept;

/// Sends the last counted signal again, now that its old handler is back, so that the host program
/// reacts to it. Does nothing when none came.
void repeat_interrupt();

}  // namespace moonshard::launch
