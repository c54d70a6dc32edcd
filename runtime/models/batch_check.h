// Checks of a batch before anything is computed from it, so that a mistake in the data is named as
// such. Values are read only where that costs nothing: on the CPU.
#pragma once

#include "runtime/core/batch.h"
#include "runtime/models/model_options.h"

namespace moonshard::models {

/// Every function throws UsageError that names model and field.
class BatchCheck {
 public:
  BatchCheck(const ModelOptions& options, const Batch& batch) : options_(options), batch_(batch) {}

  /// A tensor of so many dimensions, of which the first is the sample. `shape` describes it.
  void expect(const at::Tensor& tensor, const char* name, int64_t dims, const char* shape) const;
  /// Values from low to high, or -100 where that is allowed.
  void expect_range(const at::Tensor& tensor, const char* name, int64_t low, int64_t high,
                    bool ignored_allowed, const char* advice) const;
  /// Targets of the inputs' shape.
  void expect_like_inputs(const at::Tensor& targets) const;
  /// Of the shape of input_ids.
  void expect_like_ids(const at::Tensor& tensor, const char* name) const;

 private:
  const ModelOptions& options_;
  const Batch& batch_;
};

}  // namespace moonshard::models
