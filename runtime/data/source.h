// Where a trainer's batches come from. Ranks take turns: of N ranks each takes every N-th batch.
#pragma once

#include <cstdint>

#include "runtime/core/batch.h"

namespace moonshard::data {

class Source {
 public:
  virtual ~Source() = default;
  virtual Batch next() = 0;
  /// Batches that all ranks together have drawn so far. Any number of ranks goes on from there with
  /// those that come next.
  virtual int64_t position() const = 0;
  virtual void go_to(int64_t position) = 0;
};

}  // namespace moonshard::data
