#include "runtime/profile/memory_history.h"

#include "runtime/base/check.h"
#include "runtime/base/plugin.h"
#include "runtime/base/staged_file.h"

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
