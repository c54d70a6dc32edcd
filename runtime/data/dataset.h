// Examples that can be taken in any order: what samplers choose from. Hides how they are stored and
// what a token is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/core/batch.h"

namespace moonshard::data {

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// These examples in this order, on the CPU; none makes a batch of size 0 with the others' shape.
  /// Thread-safe.
  virtual Batch batch(const std::vector<int64_t>& examples) const = 0;
  /// What was read and how, for results and messages: counts of files, documents, tokens,
  /// repairs.
  virtual Json facts() const = 0;
};

}  // namespace moonshard::data
