// What was going on when memory ran out: bytes requested, bytes free, phase. Recorded by the
// allocators at that moment, before the error unwinds and frees memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "runtime/profile/context.h"

namespace moonshard::profile {

struct OutOfMemoryDetails {
  int64_t bytes_asked = -1, bytes_free = -1;  ///< -1: unknown
  std::string phase;                          ///< of the step, or "" outside of one
};

/// Called by allocators, for the watch around this thread's work, if there is one. The second form
/// asks the device for its free memory.
void note_out_of_memory(int64_t bytes_asked, int64_t bytes_free);
void note_out_of_memory(int64_t bytes_asked, c10::Device device);

/// While it lives, a failed allocation of this thread (and of threads that work for it, see
/// context.h) is recorded, and `action` runs while everything is still in memory.
class OutOfMemoryWatch {
 public:
  explicit OutOfMemoryWatch(std::function<void()> action = {});
  ~OutOfMemoryWatch();
  /// The last one since this watch began.
  std::optional<OutOfMemoryDetails> seen() const;

 private:
  std::shared_ptr<OutOfMemoryNotes> notes_;
  std::unique_ptr<ContextScope> scope_;
  std::unique_ptr<c10::DebugInfoGuard> reports_;
};

// PyTorch's own record of the GPU allocator: snapshot files for its memory viewer, of a whole run
// or of the moment when memory ran out.

/// Records from its construction on. On the CPU, where LibTorch keeps no such record, it does
/// nothing and reports why.
class MemoryHistory {
 public:
  explicit MemoryHistory(c10::Device device);
  ~MemoryHistory();
  MemoryHistory(const MemoryHistory&) = delete;
  MemoryHistory& operator=(const MemoryHistory&) = delete;
  /// Writes what has been recorded so far (snapshot.pickle). False when there is nothing to write.
  bool save(const std::filesystem::path& path) const;
  /// Why there is no record; "" when there is one.
  const std::string& absence() const { return absence_; }

 private:
  std::string absence_;
};

}  // namespace moonshard::profile
