// SIGUSR2: a running job traces its next steps. `kill -USR2 PID` writes trace.rank0.json.gz (and so
// on) into MOONSHARD_TRACE_DIR, or the current folder; MOONSHARD_TRACE_STEPS says how many steps
// (2).
#pragma once

#include <cstdint>
#include <filesystem>

namespace moonshard::profile {

/// Call at the start of a program that trains; an existing handler is kept.
void listen_for_trace_requests();

/// The folder to write to and the steps to trace, once per request; 0 steps without a request.
struct TraceRequest {
  int64_t steps = 0;
  std::filesystem::path folder;
};
TraceRequest take_trace_request();

}  // namespace moonshard::profile
