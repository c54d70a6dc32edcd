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

/// While one lives the wish waits: for stretches that must be done as a whole or not at all.
class InterruptHold {
 public:
  InterruptHold() noexcept;
  ~InterruptHold();
  InterruptHold(const InterruptHold&) = delete;
  InterruptHold& operator=(const InterruptHold&) = delete;
};

}  // namespace moonshard
