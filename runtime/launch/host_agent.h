// The launcher's hand on another machine: started there by the remote shell, it reads the job from
// its input, starts the ranks, hands their output over, and ends them with the launcher.
#pragma once

namespace moonshard::launch {

/// Serves standard input and output until all ranks have ended and that is told, or until the
/// launcher is gone: its input ends, or nothing comes for too long. Then the ranks are killed at
/// once, as on the launcher's own machine. Returns the process's exit code.
int serve_host_ranks();

}  // namespace moonshard::launch
