#include "runtime/launch/child_process.h"

#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <thread>

#include "runtime/profile/trace_request.h"

namespace moonshard::launch {

using namespace std::chrono_literals;

ChildProcess::ChildProcess(const ProcessRequest& request, double timeout_s)
    : child_(start_process(request)), began_(Clock::now()), timeout_s_(timeout_s) {}

ChildProcess::~ChildProcess() {
  if (result_) return;
  end(EndedBy::Caller);
  while (!poll()) std::this_thread::sleep_for(5ms);
}

void ChildProcess::end(EndedBy who) {
  if (result_ || kill_at_) return;
  ended_by_ = who;
  kill_at_ = Clock::now() + 5s;
  ::kill(-child_, SIGTERM);
}

std::optional<ProcessResult> ChildProcess::poll() {
  if (result_) return result_;
  int status = 0;
  const pid_t ended = ::waitpid(child_, &status, WNOHANG);
  if (ended == child_ || (ended < 0 && errno != EINTR)) {
    result_.emplace();
    result_->ended_by = ended_by_;
    if (ended == child_ && WIFSIGNALED(status)) result_->signal = WTERMSIG(status);
    if (ended == child_ && WIFEXITED(status)) result_->exit_code = WEXITSTATUS(status);
    return result_;
  }
  if (profile::take_trace_request().steps > 0) ::kill(-child_, SIGUSR2);
  const std::chrono::duration<double> spent = Clock::now() - began_;
  if (timeout_s_ > 0 && spent.count() >= timeout_s_) end(EndedBy::Timeout);
  if (kill_at_ && Clock::now() >= *kill_at_) ::kill(-child_, SIGKILL);
  return std::nullopt;
}

}  // namespace moonshard::launch
