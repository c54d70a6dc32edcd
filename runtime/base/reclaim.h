// Garbage that can be asked for when memory or file descriptors run out. A script's collector frees
// handles late: it does not see the bytes and files behind them.
#pragma once

namespace moonshard {

/// While it lives, reclaim() on this thread calls free_garbage(of). The innermost one counts.
class ReclaimScope {
 public:
  using Function = void (*)(void* of);
  ReclaimScope(Function free_garbage, void* of);
  ~ReclaimScope();
  ReclaimScope(const ReclaimScope&) = delete;
  ReclaimScope& operator=(const ReclaimScope&) = delete;

 private:
  Function function_before_;
  void* of_before_;
};

/// Frees what nobody uses any more; whoever was refused tries again once. False when there is
/// nobody to ask, or when asked from within.
bool reclaim();

/// open(2) that reclaims and tries again when this process or the system has no descriptor left.
int open_or_reclaim(const char* path, int flags, unsigned mode = 0);

}  // namespace moonshard
