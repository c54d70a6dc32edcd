// Checks of a batch before anything is computed from it, so that a mistake in the data is named as
// such. Values are read only where that costs nothing: on the CPU.
#pragma once

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "kernels/counter_noise/counter_noise.h"
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

/// Random numbers of one synthetic batch: they depend on its key alone, on every device.
class BatchDraws {
 public:
  BatchDraws(uint64_t key, c10::Device device)
      : key_(key), device_(device), generator_(at::detail::createCPUGenerator(key)) {}

  c10::Device device() const { return device_; }
  /// Integers from 0 to high - 1. Drawn on the host, in the order of the calls.
  at::Tensor ids(int64_t high, at::IntArrayRef shape) {
    const auto whole = at::TensorOptions().dtype(at::kLong);
    return at::randint(0, high, shape, generator_, whole).to(device_);
  }
  /// Two tensors of standard normal numbers, the same two in every call. Large: drawn on
  /// the device, from the counter, which gives the same numbers everywhere.
  std::pair<at::Tensor, at::Tensor> two_normals(std::vector<int64_t> shape,
                                                at::ScalarType type) const {
    shape.insert(shape.begin(), 2);
    at::Tensor normals = at::zeros(shape, at::TensorOptions().dtype(type).device(device_));
    kernels::add_counter_noise(normals, 1.0, {key_, 0, kernels::kPurposeData});
    return {normals[0], normals[1]};
  }

 private:
  uint64_t key_;
  c10::Device device_;
  at::Generator generator_;
};

}  // namespace moonshard::models
