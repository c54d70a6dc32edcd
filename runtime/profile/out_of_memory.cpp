#include "runtime/profile/out_of_memory.h"

#include <mutex>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "runtime/profile/memory.h"
#include "runtime/profile/phases.h"
#include "runtime/profile/trace.h"

namespace moonshard::profile {
namespace {

std::mutex mutex;
std::optional<OutOfMemoryDetails> last;
std::function<void()> on_out_of_memory;

class Reports : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t, size_t, size_t, c10::Device) override {}
  void reportOutOfMemory(int64_t bytes, size_t, size_t, c10::Device device) override {
    note_out_of_memory(bytes, device);
  }
  bool memoryProfilingEnabled() const override { return false; }
};

}  // namespace

void note_out_of_memory(int64_t bytes_asked, int64_t bytes_free) {
  std::function<void()> action;
  {
    const std::lock_guard lock(mutex);
    last = OutOfMemoryDetails{bytes_asked, bytes_free, current_phase()};
    action = on_out_of_memory;
  }
  if (action) action();
}

void note_out_of_memory(int64_t bytes_asked, c10::Device device) {
  int64_t free_bytes = -1;
  try {
    free_bytes = free_device_bytes(device);
  } catch (...) {  // the error on its way says more than this one could
  }
  note_out_of_memory(bytes_asked, free_bytes);
}

struct OutOfMemoryWatch::Guard {
  c10::DebugInfoGuard reports{c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reports>()};
};

OutOfMemoryWatch::OutOfMemoryWatch(std::function<void()> action)
    : guard_(trace_is_recording() ? nullptr : std::make_unique<Guard>()) {
  const std::lock_guard lock(mutex);
  last.reset();
  on_out_of_memory = std::move(action);
}

OutOfMemoryWatch::~OutOfMemoryWatch() {
  const std::lock_guard lock(mutex);
  on_out_of_memory = nullptr;
}

std::optional<OutOfMemoryDetails> OutOfMemoryWatch::seen() const {
  const std::lock_guard lock(mutex);
  return last;
}

}  // namespace moonshard::profile
