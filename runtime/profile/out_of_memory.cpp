#include "runtime/profile/out_of_memory.h"

#include <mutex>

#include "runtime/profile/memory.h"
#include "runtime/profile/phases.h"
#include "runtime/profile/trace.h"

namespace moonshard::profile {

struct OutOfMemoryNotes {
  std::mutex mutex;
  std::optional<OutOfMemoryDetails> last;
  std::function<void()> action;
};

void note_out_of_memory(int64_t bytes_asked, int64_t bytes_free) {
  const auto context = current_context();
  if (context == nullptr || context->notes == nullptr) return;
  std::function<void()> action;
  {
    const std::lock_guard lock(context->notes->mutex);
    context->notes->last = OutOfMemoryDetails{bytes_asked, bytes_free, current_phase()};
    action = context->notes->action;
  }
  if (action) action();
}

void note_out_of_memory(int64_t bytes_asked, c10::Device device) {
  int64_t free_bytes = -1;
  try {
    free_bytes = free_device_bytes(device);
  } catch (...) {  // the original error matters more
  }
  note_out_of_memory(bytes_asked, free_bytes);
}

OutOfMemoryWatch::OutOfMemoryWatch(std::function<void()> action)
    : notes_(std::make_shared<OutOfMemoryNotes>()) {
  notes_->action = std::move(action);
  const auto context = std::make_shared<Context>();
  context->notes = notes_;
  scope_ = std::make_unique<ContextScope>(context);
  if (!trace_holds_this_thread()) reports_ = detail::listen_to_allocator(/*counts=*/false);
}

OutOfMemoryWatch::~OutOfMemoryWatch() {
  reports_.reset();
  scope_.reset();
  const std::lock_guard lock(notes_->mutex);
  notes_->action = nullptr;  // a thread that still works for us may keep the notes
}

std::optional<OutOfMemoryDetails> OutOfMemoryWatch::seen() const {
  const std::lock_guard lock(notes_->mutex);
  return notes_->last;
}

}  // namespace moonshard::profile
