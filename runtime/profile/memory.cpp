#include "runtime/profile/memory.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>

#include "runtime/base/check.h"
#include "runtime/profile/ledger.h"
#include "runtime/profile/out_of_memory.h"

namespace moonshard::profile {
namespace {

std::atomic<int64_t> cpu_allocated{0};
std::atomic<int64_t> cpu_peak{0};
std::atomic<int64_t> cpu_limit{0};

void count_change(int64_t bytes) {
  const int64_t now = cpu_allocated.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = cpu_peak.load(std::memory_order_relaxed);
  while (now > peak && !cpu_peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

// Precedes the data of each block.
struct BlockHeader {
  int64_t bytes;
  uint64_t age;  ///< ledgers that had begun when it was allocated
};
// The header is as large as LibTorch's alignment, so that the data keeps it; data and context are
// one pointer, as oneDNN's raw allocations require.
constexpr size_t kHeaderBytes = 64;
static_assert(kHeaderBytes % c10::gAlignment == 0 && sizeof(BlockHeader) <= kHeaderBytes);

// To the ledgers, and to a trace that records memory.
void tell_profilers(void* data, int64_t bytes, uint64_t age) {
  if (detail::open_ledgers.load(std::memory_order_relaxed) > 0)
    Ledger::count(data, bytes, c10::kCPU, age);
  if (c10::memoryProfilingEnabled()) {
    const auto held = static_cast<size_t>(cpu_allocated.load(std::memory_order_relaxed));
    c10::reportMemoryUsageToProfiler(data, bytes, held, held, c10::kCPU);
  }
}

void release_block(void* data) {
  if (data == nullptr) return;
  void* block = static_cast<char*>(data) - kHeaderBytes;
  const BlockHeader header = *static_cast<BlockHeader*>(block);
  count_change(-header.bytes);
  tell_profilers(data, -header.bytes, header.age);
  c10::free_cpu(block);
}

// Replaces LibTorch's CPU allocator. Every host tensor goes through it, including kernels'
// temporaries, so that peaks are complete.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::kCPU);
    if (bytes == 0) return {nullptr, nullptr, &release_block, cpu};
    const int64_t size = static_cast<int64_t>(bytes);
    const int64_t limit = cpu_limit.load(std::memory_order_relaxed);
    const int64_t held = cpu_allocated.load(std::memory_order_relaxed);
    if (limit > 0 && held + size > limit) {
      note_out_of_memory(size, limit - held);
      throw OutOfMemoryError(
          fmt::format(
              "memory: tried to allocate {} bytes, {} of {} (memory_limit_mb) are in use; lower "
              "batch_size or seq_length, or raise the limit",
              size, held, limit),
          size);
    }
    char* block = static_cast<char*>(c10::alloc_cpu(bytes + kHeaderBytes));
    const uint64_t age = detail::ledgers_begun.load(std::memory_order_relaxed);
    *reinterpret_cast<BlockHeader*>(block) = {size, age};
    count_change(size);
    tell_profilers(block + kHeaderBytes, size, age);
    return {block + kHeaderBytes, block + kHeaderBytes, &release_block, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_block; }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    default_copy_data(to, from, count);
  }
};

c10::DeviceAllocator& device_allocator(c10::Device device) {
  at::globalContext().lazyInitDevice(
      device.type());  // statistics are asked for before the first tensor
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  MS_ASSERT(allocator != nullptr, "no caching allocator for {}", device.str());
  return *allocator;
}

}  // namespace

void install_cpu_memory_hook() {
  static std::once_flag once;
  std::call_once(once, [] {
    static CountingAllocator allocator;
    c10::SetCPUAllocator(&allocator, /*priority=*/1);
  });
}

void set_cpu_memory_limit(int64_t bytes) {
  cpu_limit.store(bytes);
}

MemoryReading read_memory(c10::Device device) {
  MemoryReading reading;
  reading.rss_bytes = resident_set_bytes();
  if (!device.is_cuda()) {
    reading.allocated_bytes = reading.reserved_bytes = cpu_allocated.load();
    reading.max_allocated_bytes = reading.max_reserved_bytes = cpu_peak.load();
    return reading;
  }
  const auto stats = device_allocator(device).getDeviceStats(device.index());
  const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  reading.allocated_bytes = stats.allocated_bytes[all].current;
  reading.max_allocated_bytes = stats.allocated_bytes[all].peak;
  reading.reserved_bytes = stats.reserved_bytes[all].current;
  reading.max_reserved_bytes = stats.reserved_bytes[all].peak;
  return reading;
}

int64_t free_device_bytes(c10::Device device) {
  if (!device.is_cuda()) return -1;
  return static_cast<int64_t>(device_allocator(device).getMemoryInfo(device.index()).first);
}

void reset_peak_memory(c10::Device device) {
  if (device.is_cuda()) {
    device_allocator(device).resetPeakStats(device.index());
  } else {
    cpu_peak.store(cpu_allocated.load());
  }
}

int64_t resident_set_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long total = 0, resident = 0;
  const int fields = std::fscanf(file, "%lld %lld", &total, &resident);
  std::fclose(file);
  return fields == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace moonshard::profile
