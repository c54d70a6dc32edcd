// Ends process groups when this process is killed. Processes that we start end by themselves then
// (die_with_parent), what they have started would not.
#pragma once

#include <sys/types.h>

#include "runtime/base/files.h"

namespace moonshard::launch {

/// Most ranks of a job.
inline constexpr int kMaxRanks = 4096;

/// A child that only reads a pipe; the pipe's end is this process's end. Children that have left
/// their group are not found.
class GroupGuard {
 public:
  GroupGuard();
  ~GroupGuard();
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;

  /// A group that has begun, or all of whose processes have ended.
  void add(pid_t group) { tell(group); }
  void remove(pid_t group) { tell(-group); }

 private:
  void tell(pid_t number);

  pid_t child_ = -1;
  Descriptor tell_;
};

}  // namespace moonshard::launch
