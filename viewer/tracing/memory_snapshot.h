// Summary of a PyTorch memory snapshot (snapshot.pickle): how full the segments are, where the
// largest blocks were allocated, the last events. The file itself may be gigabytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/input/control.h"
#include "runtime/input/open_file.h"

namespace moonshard::viewer {

struct SnapshotSegment {
  uint64_t address = 0;
  int64_t device = 0, stream = 0;
  std::string kind;                                   ///< "large", "small"
  double total = 0, allocated = 0, largest_free = 0;  ///< bytes
  uint32_t num_blocks = 0;
  bool expandable = false;
};

struct SnapshotBlock {
  uint64_t address = 0;
  double size = 0, requested = 0;
  std::string state;  ///< active_allocated, active_pending_free, inactive, ...
  std::string where;  ///< innermost frames, when the snapshot has them
};

struct SnapshotAction {
  std::string action;  ///< alloc, free_requested, free_completed, segment_alloc, oom, ...
  uint64_t count = 0;
  double bytes = 0;
};

/// Where memory was asked for.
struct SnapshotSite {
  std::string owner;  ///< what the file says, else what the stack says (snapshot_owner.h)
  std::string where;  ///< innermost frames; may be empty
};

/// One allocation of the history, from the event that made it to the one that freed it. What was
/// there before the history begins at its first event; what is never freed ends behind the last.
struct SnapshotAllocation {
  uint32_t begin = 0, end = 0;  ///< events
  uint32_t site = 0;            ///< in MemorySnapshot::sites
  uint64_t address = 0;
  double bytes = 0;
  double begin_us = 0, end_us = 0;  ///< since the first event; equal: not known
};

struct MemorySnapshot {
  double reserved = 0, allocated = 0, active = 0, requested = 0;  ///< bytes, all segments
  double free_in_segments = 0, largest_free = 0;                  ///< lost to fragmentation
  uint64_t num_segments = 0, num_blocks = 0, num_events = 0;
  std::vector<SnapshotSegment> segments;  ///< largest first, at most 1000
  std::vector<SnapshotBlock> largest;     ///< allocated blocks, largest first, at most 100
  std::vector<SnapshotAction> actions;
  std::vector<double> history_bytes;  ///< allocated after each event (thinned to at most 4000)
  std::vector<SnapshotSite> sites;
  std::vector<SnapshotAllocation> allocations;  ///< by their begin; the largest, at most 8000
  uint64_t num_allocations = 0;                 ///< all that there were
  std::vector<std::string> problems;
};

/// Reads a file of torch.cuda.memory._dump_snapshot or of moonshard's memory_history. Throws
/// IoError when it is no snapshot. Nothing in the pickle is executed.
MemorySnapshot read_snapshot(const std::filesystem::path& path, const ReadControl& control = {});
/// The same of a file that is open.
MemorySnapshot read_snapshot(OpenFile file, const ReadControl& control = {});

}  // namespace moonshard::viewer
