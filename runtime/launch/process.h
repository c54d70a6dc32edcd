// One experiment in one process of its own: isolated memory, a log file, and no orphan left behind.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace moonshard::launch {

struct ProcessResult {
  int exit_code = 0;  ///< of a process that ended by itself
  int signal = 0;     ///< that ended it; 0 when none did
};

/// Runs a program to its end. Its output goes to the log file (appended), its input is empty, and
/// it is a group of its own: a Ctrl-C at the terminal reaches only us, and we end the whole group.
/// `on_tick` is called about ten times a second. When an interrupt is asked for, the group is ended
/// (politely, then after 5 s by force) and Interrupted is thrown.
ProcessResult run_process(const std::vector<std::string>& arguments,
                          const std::filesystem::path& log, const std::function<void()>& on_tick);

/// For the child: dies when its parent does, however that ended. Does nothing in a process that was
/// not started by run_process.
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
