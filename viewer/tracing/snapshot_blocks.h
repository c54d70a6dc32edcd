// The allocations of a memory snapshot as blocks over its events: each as high as it is large,
// standing on those that are older. When one of these goes, it sinks.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "viewer/tracing/memory_snapshot.h"

namespace moonshard::viewer {

/// Follows alloc and free events to what lived when.
class AllocationReplay {
 public:
  void alloc(uint32_t event, double time_us, uint64_t address, double bytes, uint32_t site);
  /// A free of something that no event made: it was there before, allocated by nobody knows whom.
  void free(uint32_t event, double time_us, uint64_t address, double bytes, uint32_t unknown_site);
  /// Something that the segments hold in the end; nothing new where an event made it.
  void hold(uint64_t address, double bytes, uint32_t site);
  /// All, by their begin; what still lives ends at num_events.
  std::vector<SnapshotAllocation> take(uint32_t num_events, double end_us);

 private:
  std::unordered_map<uint64_t, size_t> living_;  // by address, places in list_
  std::vector<SnapshotAllocation> list_;
  double first_us_ = -1;
};

/// Where a block stands for a while.
struct BlockStep {
  uint32_t from = 0, to = 0;  ///< events
  double foot = 0;            ///< bytes below it
};

struct BlockLayout {
  std::vector<size_t> shown;  ///< places in MemorySnapshot::allocations, those that are drawn
  std::vector<size_t> first;  ///< of each of them its first step, and the number of all steps
  std::vector<BlockStep> steps;
  double top = 0;  ///< the highest that they reach
};
/// With more than max_steps steps the smallest allocations are left out, until the others fit.
BlockLayout layout_blocks(const std::vector<SnapshotAllocation>& allocations,
                          size_t max_steps = 400'000);

/// The drawn block at an event and a height in bytes; a place in BlockLayout::shown.
std::optional<size_t> block_at(const BlockLayout& layout,
                               const std::vector<SnapshotAllocation>& allocations, double event,
                               double bytes);

}  // namespace moonshard::viewer
