// A process that somebody else waits for: several of them side by side, looked at in turn.
#pragma once

#include <chrono>
#include <optional>

#include "runtime/launch/process.h"

namespace moonshard::launch {

class ChildProcess {
 public:
  /// Throws IoError when it cannot be started. `timeout_s`: 0 means none.
  ChildProcess(const ProcessRequest& request, double timeout_s);
  /// Ends it if it has not ended.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Its result, once it has ended. Looks after its time-out, and hands a trace request on.
  std::optional<ProcessResult> poll();
  /// Asks its group to end (SIGTERM); from 5 s later on poll() ends it (SIGKILL).
  void end(EndedBy who);

 private:
  using Clock = std::chrono::steady_clock;

  pid_t child_;
  Clock::time_point began_;
  double timeout_s_;
  std::optional<Clock::time_point> kill_at_;
  EndedBy ended_by_ = EndedBy::Itself;
  std::optional<ProcessResult> result_;
};

}  // namespace moonshard::launch
