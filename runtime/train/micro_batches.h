// How a step splits the batch that it is given.
#pragma once

#include <vector>

#include "runtime/core/batch.h"

namespace moonshard::train {

/// `count` parts in order, as even as it goes; a part may be empty.
inline std::vector<Batch> micro_batches(const Batch& batch, int64_t count) {
  std::vector<Batch> parts;
  const int64_t samples = batch.size();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = samples * i / count;
    parts.push_back(batch.slice(first, samples * (i + 1) / count - first));
  }
  return parts;
}

}  // namespace moonshard::train
