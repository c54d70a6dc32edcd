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

}  // namespace moonshard
