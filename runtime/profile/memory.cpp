#include "runtime/profile/memory.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <limits>
#include <mutex>
#include <optional>

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>

#include "runtime/base/check.h"
#include "runtime/base/reclaim.h"
#include "runtime/core/device.h"
#include "runtime/profile/host_memory.h"
#include "runtime/profile/ledger.h"
#include "runtime/profile/out_of_memory.h"

namespace moonshard::profile {
namespace {

std::atomic<int64_t> cpu_allocated{0};
std::atomic<int64_t> cpu_peak{0};
std::atomic<int64_t> cpu_limit{0};  // 0: what the machine leaves free

// Peaks before a PeakSince was made, which reset the allocator's own. The host is at the end.
struct Peaks {
  std::atomic<int64_t> allocated{0}, reserved{0};
};
constexpr size_t kHostPlace = 64;
std::array<Peaks, kHostPlace + 1> earlier_peaks;

Peaks& earlier_peaks_of(c10::Device device) {
  return earlier_peaks[device.is_cuda() ? static_cast<size_t>(device.index()) % kHostPlace
                                        : kHostPlace];
}

void count_change(int64_t bytes) {
  const int64_t now = cpu_allocated.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = cpu_peak.load(std::memory_order_relaxed);
  while (now > peak && !cpu_peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

// ---- the limit --------------------------------------------------------------------------------

struct Shortage {
  int64_t free = 0;
  std::string text;
};

std::optional<Shortage> short_of_given_limit(int64_t size, int64_t held, int64_t limit) {
  if (held + size <= limit) return std::nullopt;
  return Shortage{limit - held,
                  fmt::format("memory: tried to allocate {} bytes, {} of {} (memory_limit_mb) are "
                              "in use; lower batch_size or seq_length, or raise the limit",
                              size, held, limit)};
}

// Private memory of the process: what its tensors have touched, and all else that is not a file's.
int64_t private_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long total = 0, resident = 0, shared = 0;
  const int fields = std::fscanf(file, "%lld %lld %lld", &total, &resident, &shared);
  std::fclose(file);
  return fields == 3 ? (resident - shared) * sysconf(_SC_PAGESIZE) : 0;
}

// Freed, and not given back to the system: the next small tensors take it.
int64_t kept_by_malloc() {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
  return static_cast<int64_t>(::mallinfo2().fordblks);
#else
  return 0;
#endif
}

// The system grants memory that it does not have and kills when it is touched; here it is refused.
// Neighbours come and go, so the machine is asked again after every kMostUnasked bytes, and more
// often when little is left.
constexpr int64_t kMostUnasked = 256 << 20, kLeastUnasked = 1 << 20;
constexpr int64_t kOwnMapping = 32 << 20;  // malloc never takes this much from what it has kept
std::atomic<int64_t> bytes_unasked{0};     // that may be allocated before the next look
std::atomic<int64_t> private_at_start{0};  // before there were tensors

std::optional<Shortage> short_of_machine(int64_t size, int64_t held) {
  if (bytes_unasked.fetch_sub(size, std::memory_order_relaxed) >= size) return std::nullopt;
  const FreeHostMemory machine = free_host_memory();
  if (machine.bytes < 0) {
    bytes_unasked.store(std::numeric_limits<int64_t>::max() / 2);
    return std::nullopt;
  }
  // For page tables and the like. More would refuse what fits.
  const int64_t spare = (4 << 20) + (held + size) / 512;
  // Tensors that nobody has written to yet are held, but not missing on the machine.
  const int64_t touched = std::clamp<int64_t>(private_bytes() - private_at_start.load(), 0, held);
  const int64_t free = std::max<int64_t>(0, machine.bytes - spare - (held - touched));
  if (size > free && (size >= kOwnMapping || size > free + kept_by_malloc())) {
    bytes_unasked.store(0, std::memory_order_relaxed);
    return Shortage{
        free,
        fmt::format("memory: tried to allocate {} bytes, {} are free ({} has no more), {} are "
                    "held by tensors; lower batch_size or seq_length, or end other processes",
                    size, free, machine.bound, held)};
  }
  bytes_unasked.store(std::clamp((free - size) / 4, kLeastUnasked, kMostUnasked),
                      std::memory_order_relaxed);
  return std::nullopt;
}

// Throws when there is no room, also after garbage is gone.
void make_room(int64_t size) {
  for (bool again = false;; again = true) {
    const int64_t limit = cpu_limit.load(std::memory_order_relaxed);
    const int64_t held = cpu_allocated.load(std::memory_order_relaxed);
    const std::optional<Shortage> shortage =
        limit > 0 ? short_of_given_limit(size, held, limit) : short_of_machine(size, held);
    if (!shortage) return;
    if (!again && reclaim()) continue;
    note_out_of_memory(size, shortage->free);
    throw OutOfMemoryError(shortage->text, size);
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
    make_room(size);
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
    private_at_start.store(private_bytes());
    c10::SetCPUAllocator(&allocator, /*priority=*/1);
  });
}

void set_cpu_memory_limit(int64_t bytes) {
  cpu_limit.store(bytes);
}

namespace {

// With the allocator's own peaks.
MemoryReading read_allocator(c10::Device device) {
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

void reset_allocator(c10::Device device) {
  if (device.is_cuda()) {
    device_allocator(device).resetPeakStats(device.index());
  } else {
    cpu_peak.store(cpu_allocated.load());
  }
}

}  // namespace

MemoryReading read_memory(c10::Device device) {
  MemoryReading reading = read_allocator(device);
  const Peaks& earlier = earlier_peaks_of(device);
  reading.max_allocated_bytes = std::max(reading.max_allocated_bytes, earlier.allocated.load());
  reading.max_reserved_bytes = std::max(reading.max_reserved_bytes, earlier.reserved.load());
  return reading;
}

int64_t held_bytes() {
  int64_t bytes = cpu_allocated.load(std::memory_order_relaxed);
  if (!has_named_gpu()) return bytes;
  auto* gpus = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(c10::kCUDA));
  if (gpus == nullptr || !gpus->initialized()) return bytes;
  const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  for (int i = 0; i < cuda_device_count(); ++i)
    bytes += gpus->getDeviceStats(static_cast<c10::DeviceIndex>(i)).allocated_bytes[all].current;
  return bytes;
}

int64_t free_device_bytes(c10::Device device) {
  if (!device.is_cuda()) return -1;
  return static_cast<int64_t>(device_allocator(device).getMemoryInfo(device.index()).first);
}

void reset_peak_memory(c10::Device device) {
  reset_allocator(device);
  earlier_peaks_of(device).allocated.store(0);
  earlier_peaks_of(device).reserved.store(0);
}

PeakSince::PeakSince(c10::Device device) : device_(device) {
  const MemoryReading reading = read_memory(device);
  earlier_peaks_of(device).allocated.store(reading.max_allocated_bytes);
  earlier_peaks_of(device).reserved.store(reading.max_reserved_bytes);
  reset_allocator(device);
}

int64_t PeakSince::allocated_bytes() const {
  return read_allocator(device_).max_allocated_bytes;
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
