#include "runtime/base/reclaim.h"

#include <cerrno>
#include <utility>

#include "runtime/base/disk.h"

namespace moonshard {
namespace {

thread_local ReclaimScope::Function innermost = nullptr;
thread_local void* innermost_of = nullptr;

}  // namespace

ReclaimScope::ReclaimScope(Function free_garbage, void* of)
    : function_before_(std::exchange(innermost, free_garbage)),
      of_before_(std::exchange(innermost_of, of)) {}

ReclaimScope::~ReclaimScope() {
  innermost = function_before_;
  innermost_of = of_before_;
}

bool reclaim() {
  const ReclaimScope::Function function = innermost;
  if (function == nullptr) return false;
  void* const of = innermost_of;
  const ReclaimScope none_within(nullptr, nullptr);
  function(of);
  return true;
}

int open_or_reclaim(const char* path, int flags, unsigned mode) {
  const int file = disk().open(path, flags, mode);
  if (file >= 0 || (errno != EMFILE && errno != ENFILE)) return file;
  const int error = errno;
  if (reclaim()) return disk().open(path, flags, mode);
  errno = error;
  return file;
}

}  // namespace moonshard
