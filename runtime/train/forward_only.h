// Forward passes outside of training, over parameters that may be in parts.
#pragma once

#include "runtime/sharding/parallel.h"

namespace moonshard::train {

/// While it lives, layers may run forward. It ends as a step that is given up: nothing has changed,
/// and what was gathered is released. Before each pass but the first: begin_micro_batch(false).
class ForwardOnly {
 public:
  explicit ForwardOnly(sharding::Parallel& parallel) : parallel_(parallel) {
    parallel_.begin_step();
    parallel_.begin_micro_batch(/*last=*/false);
  }
  ~ForwardOnly() {
    try {
      parallel_.abandon();
    } catch (...) {  // the error that led here is the one to tell
    }
  }
  ForwardOnly(const ForwardOnly&) = delete;
  ForwardOnly& operator=(const ForwardOnly&) = delete;

 private:
  sharding::Parallel& parallel_;
};

}  // namespace moonshard::train
