// Lua's collector sees a handle of some bytes, not the tensors and files behind it: left alone it
// would free a thousand dropped models when the script ends. Every bound call tells it what it
// holds.
#pragma once

#include "bindings/sol.h"

#include "runtime/base/reclaim.h"

namespace moonshard::bindings {

/// While a bound function runs, whoever runs out of memory or descriptors on this thread has
/// garbage collected and tries again (base/reclaim.h).
class CollectableCall {
 public:
  explicit CollectableCall(lua_State* L);

 private:
  ReclaimScope scope_;
};

/// After a bound call: collects garbage when tensors hold much more than after the last collection.
/// Finalizers run; no C++ object may be alive in the caller's frame that a Lua error would skip.
void collect_if_grown(lua_State* L);

}  // namespace moonshard::bindings
