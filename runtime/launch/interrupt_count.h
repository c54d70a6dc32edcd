// Counts Ctrl-C instead of raising an error: for work that stops in stages. The first press may
// mean "after this point", the second "now". SIGTERM and SIGHUP mean "now".
#pragma once

namespace moonshard::launch {

/// From now on SIGINT, SIGTERM and SIGHUP are counted; previous handlers do not see them. A signal
/// that was ignored stays ignored. Calls nest; only the outermost counts from zero.
void begin_counting_interrupts();

/// Restores the previous handlers.
void end_counting_interrupts();

/// Presses of Ctrl-C so far; 2 or more after a SIGTERM or SIGHUP.
int num_interrupts() noexcept;

/// Sends the last counted signal again, now that its old handler is back, so that the host program
/// reacts to it. Does nothing when none came.
void repeat_interrupt();

}  // namespace moonshard::launch
