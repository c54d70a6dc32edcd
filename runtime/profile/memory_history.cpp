#include "runtime/profile/memory_history.h"

#include <dlfcn.h>

#include "runtime/base/atomic_file.h"
#include "runtime/base/check.h"
#include "runtime/base/prefix.h"

namespace moonshard::profile {
namespace {

// In a library of its own, as it needs LibTorch's CUDA library when it is linked.
struct Plugin {
  void (*record)(bool on, size_t entries) = nullptr;
  void (*snapshot)(void* to, void (*take)(void* to, const char* bytes, size_t count)) = nullptr;
  std::string absence;
};

const Plugin& plugin() {
  static const Plugin instance = [] {
    Plugin found;
    const std::string library = (install_prefix() / "lib" / "libmoonshard_cuda_memory.so").string();
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      found.absence = fmt::format("no library {}: {}", library, dlerror());
      return found;
    }
    found.record =
        reinterpret_cast<decltype(found.record)>(dlsym(handle, "moonshard_record_memory"));
    found.snapshot =
        reinterpret_cast<decltype(found.snapshot)>(dlsym(handle, "moonshard_memory_snapshot"));
    if (found.record == nullptr || found.snapshot == nullptr)
      found.absence = library + " is not of this version; build it again";
    return found;
  }();
  return instance;
}

constexpr size_t kMostEntries = 200'000;

}  // namespace

MemoryHistory::MemoryHistory(c10::Device device) {
  if (!device.is_cuda()) {
    absence_ = "LibTorch records the memory of GPUs only; the record's own breakdown is there";
  } else if (!plugin().absence.empty()) {
    absence_ = plugin().absence;
  } else {
    plugin().record(true, kMostEntries);
  }
}

MemoryHistory::~MemoryHistory() {
  if (absence_.empty()) plugin().record(false, 0);
}

bool MemoryHistory::save(const std::filesystem::path& path) const {
  if (!absence_.empty()) return false;
  std::string bytes;
  plugin().snapshot(&bytes, [](void* to, const char* from, size_t count) {
    static_cast<std::string*>(to)->assign(from, count);
  });
  write_file_atomically(path, bytes);
  return true;
}

}  // namespace moonshard::profile
