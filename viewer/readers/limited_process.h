// Untrusted files are parsed in a separate process, with limits on memory and time and without
// write access: a failure there becomes an error message here. A small service process is started
// first, before there are threads or a screen; it forks one worker per request.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>

#include "runtime/input/control.h"

namespace moonshard::viewer {

struct ProcessLimits {
  uint64_t memory_bytes = 4ull << 30;
  unsigned cpu_seconds = 300;
};

/// What a worker does: takes a request's bytes, sends each part of the answer as it is ready.
using WorkerFunction = void (*)(std::string_view request, const ReadControl& control,
                                const std::function<void(std::string_view part)>& answer);

/// Starts the service; later calls do nothing. Programs call it first thing in main, because
/// only a process without threads can be forked safely.
void start_reading_service(WorkerFunction worker, const ProcessLimits& limits = {});

/// The service's process id, for tests; -1 before it was started.
pid_t reading_service_process();

/// Sends a request and calls on_part for each part of the answer, in the calling thread. Throws
/// IoError with the worker's message, or when it died; Cancelled when stop becomes true.
void read_in_process(const std::string& request, const std::function<void(double share)>& progress,
                     const std::atomic<bool>& stop,
                     const std::function<void(std::string_view part)>& on_part);

}  // namespace moonshard::viewer
