// Memory statistics: bytes that tensors hold on the host and on GPUs, with their peaks, and the
// process's resident set. Host tensors are counted through a hook in LibTorch's CPU allocator.
#pragma once

#include <cstdint>
#include <string>

#include <c10/core/Device.h>

namespace moonshard::profile {

struct MemoryReading {
  int64_t allocated_bytes = 0;      ///< held by tensors now
  int64_t max_allocated_bytes = 0;  ///< the peak since the last reset
  int64_t reserved_bytes = 0;       ///< held by the allocator (GPU); equals allocated on the CPU
  int64_t max_reserved_bytes = 0;
  int64_t rss_bytes = 0;  ///< of the whole process
};

/// Installs the counting hook in the CPU allocator. Idempotent; earlier tensors are not counted, so
/// programs call it first.
void install_cpu_memory_hook();

/// Limits the bytes of the process's host tensors; above it an allocation throws OutOfMemoryError.
/// 0, as at the start: what the machine and its control groups leave free, asked again as memory is
/// taken (host_memory.h); the kernel would grant more and then kill.
void set_cpu_memory_limit(int64_t bytes);

MemoryReading read_memory(c10::Device device);
void reset_peak_memory(c10::Device device);

/// The peak since it was made. Readings go on as if there were none: their peaks are since the last
/// reset, and that ends what this one knows.
class PeakSince {
 public:
  explicit PeakSince(c10::Device device);
  int64_t allocated_bytes() const;

 private:
  c10::Device device_;
};

/// By all tensors, on the host and on GPUs that are in use. Quick, and starts no GPU.
int64_t held_bytes();

/// Free device memory by the driver; -1 for the host.
int64_t free_device_bytes(c10::Device device);

int64_t resident_set_bytes();

}  // namespace moonshard::profile
