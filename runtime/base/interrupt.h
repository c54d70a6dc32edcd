// The user's wish to stop, as one flag. A signal handler raises it; long work looks at it between
// layers and steps and throws Interrupted, so that Ctrl-C returns to the prompt with all values
// intact.
#pragma once

namespace moonshard {

void request_interrupt() noexcept;  ///< async-signal-safe
bool interrupt_requested() noexcept;
void clear_interrupt() noexcept;

/// Throws Interrupted when a stop was asked for. The flag stays up until the host clears it.
void throw_if_interrupted();

// The system's wish that a run ends soon and goes on later (Slurm before a time limit, a machine
// that is taken away): training that keeps checkpoints saves one and ends.

/// While one lives, the first SIGTERM is noted; a second has its default action. They may nest.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
};

bool stop_requested() noexcept;
/// The run that was asked to stop has saved what it needs to go on. The program then ends with
/// kExitToContinue, by which launchers and job scripts know that it wants to be started again.
void note_stopped() noexcept;
bool was_stopped() noexcept;
inline constexpr int kExitToContinue = 75;  ///< EX_TEMPFAIL

/// While one lives the wish waits: for stretches that must be done as a whole or not at all.
class InterruptHold {
 public:
  InterruptHold() noexcept;
  ~InterruptHold();
  InterruptHold(const InterruptHold&) = delete;
  InterruptHold& operator=(const InterruptHold&) = delete;
};

}  // namespace moonshard
