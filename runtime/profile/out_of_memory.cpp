#include "runtime/profile/out_of_memory.h"

#include <mutex>

#include "runtime/base/files.h"
#include "runtime/base/plugin.h"
#include "runtime/profile/memory.h"
#include "runtime/profile/phases.h"
#include "runtime/profile/trace.h"

namespace moonshard::profile {
namespace {

// In a separate library, as it needs LibTorch's CUDA library when it is linked.
struct HistoryPlugin {
  void (*record)(bool on, size_t entries) = nullptr;
  void (*snapshot)(void* to, void (*take)(void* to, const char* bytes, size_t count)) = nullptr;
  std::string absence;
};

const HistoryPlugin& history_plugin() {
  static const HistoryPlugin instance = [] {
    static const Plugin library("moonshard_torch_cuda");
    HistoryPlugin found;
    found.absence = library.absence();
    found.record = library.function<void(bool, size_t)>("moonshard_record_memory");
    found.snapshot = library.function<void(void*, void (*)(void*, const char*, size_t))>(
        "moonshard_memory_snapshot");
    if (found.absence.empty() && (found.record == nullptr || found.snapshot == nullptr))
      found.absence = library.path() + " is of another version; build it again";
    return found;
  }();
  return instance;
}

constexpr size_t kMostEntries = 200'000;

}  // namespace

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

MemoryHistory::MemoryHistory(c10::Device device) {
  if (!device.is_cuda()) {
    absence_ = "LibTorch records the memory of GPUs only; the record's own breakdown is there";
  } else if (!history_plugin().absence.empty()) {
    absence_ = history_plugin().absence;
  } else {
    history_plugin().record(true, kMostEntries);
  }
}

MemoryHistory::~MemoryHistory() {
  if (absence_.empty()) history_plugin().record(false, 0);
}

bool MemoryHistory::save(const std::filesystem::path& path) const {
  if (!absence_.empty()) return false;
  std::string bytes;
  history_plugin().snapshot(&bytes, [](void* to, const char* from, size_t count) {
    static_cast<std::string*>(to)->assign(from, count);
  });
  write_file_atomically(path, bytes);
  return true;
}

}  // namespace moonshard::profile
