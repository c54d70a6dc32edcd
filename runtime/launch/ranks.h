// Several processes as one job: started together, here and on other machines, watched, and ended
// together. The first failure is remembered; the other ranks get time to report; no process is left
// behind. Needs no LibTorch: the caller makes the board.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/pulse.h"
#include "runtime/launch/process.h"
#include "runtime/launch/remote_ranks.h"

namespace moonshard::launch {

/// The job's rendezvous. Valid as long as the board lives.
struct MeetingPoint {
  std::string store;  ///< a socket's path, or tcp:ADDRESS:PORT
  std::shared_ptr<comm::Board> board;
  std::string first_machine =
      {};  ///< rank 0's for the others to find the way to; "" on one machine
};

struct RanksRequest {
  std::vector<std::string> arguments;  ///< the program's path first; the same for all ranks
  int count = 1;
  std::vector<HostRanks> hosts;   ///< in the order of their ranks; empty: all ranks are here
  std::string remote_shell = {};  ///< words before a host and a command, for those that are not
  std::filesystem::path log_dir;  ///< made when missing; log.rank<r>.txt of ranks other than 0
  bool rank_0_has_log = false;    ///< else it has our input, output and error output
  std::function<MeetingPoint(const std::string& token)> make_meeting_point;

  double last_words_s = 3;  ///< from the first failure to SIGTERM for the others: time to report
  double terminate_s = 2;   ///< from SIGTERM to SIGKILL
  double interrupt_s = 5;   ///< from an interrupt to SIGKILL
  /// What an interrupt is sent to the ranks as: SIGINT, or SIGTERM for what the system asks. Null:
  /// SIGINT.
  std::function<int()> ending_signal = {};
  double save_s = 3600;  ///< from that SIGTERM to SIGKILL: ranks that keep checkpoints save one
};

struct RanksResult {
  int exit_code = 0;        ///< 0, or that of the first rank that failed; 128 + N for signal N
  int failed_rank = -1;     ///< the first that failed
  std::string error;        ///< what the failed rank said itself, often nothing
  std::string report;       ///< for the user: who failed, how, in which collective, the log's end
  std::string failed_host;  ///< of the failed rank; empty without a list of hosts
  bool lost_host = false;   ///< it failed with its host
};

/// Runs the job to its end. When an interrupt is requested, every rank gets SIGINT (or SIGTERM)
/// once; Interrupted is thrown when all have ended, unless they saved a checkpoint and ended with
/// kExitToContinue. Must be called on a thread that outlives the job: the
/// ranks die with it. Throws IoError when a rank cannot be started.
RanksResult launch_ranks(const RanksRequest& request);

}  // namespace moonshard::launch
