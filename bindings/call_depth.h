// Limits the nesting of bound functions that call back into Lua. Each level uses C stack, which Lua
// does not check.
#pragma once

#include "runtime/base/check.h"

namespace moonshard::bindings {

class CallDepth {
 public:
  explicit CallDepth(const char* function) {
    MS_CHECK(depth_ < kMaxDepth, "{}: expected at most {} calls inside one another, got more",
             function, kMaxDepth);
    ++depth_;
  }
  ~CallDepth() { --depth_; }
  CallDepth(const CallDepth&) = delete;
  CallDepth& operator=(const CallDepth&) = delete;

 private:
  static constexpr int kMaxDepth = 100;
  static inline thread_local int depth_ = 0;
};

}  // namespace moonshard::bindings
