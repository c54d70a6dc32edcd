// For operations that have no ATen reference on a GPU: without the CUDA library they run on a copy
// in host memory, which is slow and says so once.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/common/choice.h"
#include "kernels/common/cuda_library.h"

namespace moonshard::kernels {

/// False when the kernel can run; true after on_host(copy) has done the work.
template <class OnHost>
bool ran_on_host_copy(const char* operation, at::Tensor& target, const OnHost& on_host) {
  if (cuda_library_absence().empty()) return false;
  note_fallback(operation, cuda_library_absence());
  at::Tensor copy = target.to(at::kCPU);
  on_host(copy);
  target.copy_(copy);
  return true;
}

}  // namespace moonshard::kernels
