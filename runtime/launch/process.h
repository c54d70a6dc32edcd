// One experiment in one process of its own: isolated memory, a log file, and no orphan left behind.
// Several such processes as one job are in ranks.h.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moonshard::launch {

enum class EndedBy { Itself, Timeout, Caller };

struct ProcessResult {
  int exit_code = 0;  ///< of a process that ended by itself
  int signal = 0;     ///< that ended it; 0 when none did
  EndedBy ended_by = EndedBy::Itself;
};

struct ProcessRequest {
  std::vector<std::string> arguments;  ///< the program's path first
  /// Output is appended there and input is empty. Without a log all three are ours; but a terminal
  /// is no input for a process of another group: reading from it would stop the process.
  std::filesystem::path log;
  std::vector<std::pair<std::string, std::string>> variables;  ///< added to our environment
};

/// Starts a process as the leader of a group of its own. It should call die_with_parent: that means
/// the thread that called this. Throws IoError.
pid_t start_process(const ProcessRequest& request);

/// The child's end, if it has ended by now. The process is left to be waited for: until then its
/// number is nobody else's.
std::optional<ProcessResult> peek_end(pid_t child);

struct ProcessWatch {
  std::function<bool()> keep_going;  ///< asked about ten times a second; false ends the process
  double timeout_s = 0;              ///< 0 means none
  bool stops_on_interrupt = true;    ///< else an interrupt is keep_going's business
};

/// Runs a program to its end, or until the watch says that it has run long enough: then the group
/// is ended (politely, after 5 s by force) and the result says who ended it. A Ctrl-C at the
/// terminal reaches only us; where the watch stops on an interrupt, the group is ended and
/// Interrupted is thrown.
ProcessResult run_process(const ProcessRequest& request, const ProcessWatch& watch);

/// The same with output appended to a log file, empty input, and nothing to stop it but an
/// interrupt.
ProcessResult run_process(const std::vector<std::string>& arguments,
                          const std::filesystem::path& log, const std::function<void()>& on_tick);

/// For the child: dies when its parent does, however that ended. Does nothing in a process that was
/// not started by start_process. Call it first: programs that the child starts must not see the
/// variable that it reads.
void die_with_parent();

/// "exit code 1" or "signal 9 (Killed)".
std::string describe(const ProcessResult& result);

/// Where moonshard is installed, for hosts that link it into a program of their own. Without a call
/// the prefix is the environment's MOONSHARD_PREFIX, or the folder above the bin/ or lib/ our code
/// lies in.
void set_prefix(const std::filesystem::path& folder);

/// <prefix>/bin/NAME
std::filesystem::path sibling_program(const std::string& name);

/// <prefix>/share/moonshard
std::filesystem::path shared_files();

}  // namespace moonshard::launch
