// Runs the moonshard program as several ranks on this machine, with rendezvous, logs and results.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/launch/ranks.h"

namespace moonshard::launch {

struct ProgramRanks {
  std::vector<std::string> words;  ///< after the program's name
  int count = 1;
  std::vector<HostRanks> hosts = {};  ///< empty: all ranks are here; else `count` is theirs
  std::string remote_shell = {};      ///< see RanksRequest
  std::function<void(const std::string&)> say = {};  ///< which hosts and addresses a job has
  std::filesystem::path program;  ///< empty: the program that lies beside our code
  /// Empty: a new folder among the temporary files, which is removed after a job without failure.
  std::filesystem::path log_dir;
  bool rank_0_has_log = false;
  std::function<int()> ending_signal = {};  ///< see RanksRequest
};

struct ProgramRanksResult : RanksResult {
  std::filesystem::path log_dir;
};

/// Runs the job to its end; see launch_ranks. The rendezvous is a socket of this user alone, with
/// other machines a port of this one, at the address that reaches them (or MASTER_ADDR).
ProgramRanksResult run_program_ranks(const ProgramRanks& program);

/// An experiment's options, run by `count` ranks: rank 0's record. Out of memory on any rank is the
/// record's status; other failures are thrown as Error with the launcher's report.
Json run_experiment_ranks(const Json& options, int count);

/// The record of a job that failed before rank 0 could write one: status "oom" when a rank ran out
/// of memory, else "failed".
Json failure_record(const RanksResult& result, const Json& options);

/// Exit code of a process that ran out of memory.
inline constexpr int kExitOutOfMemory = 3;

}  // namespace moonshard::launch
