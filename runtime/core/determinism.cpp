#include "runtime/core/determinism.h"

#include <ATen/Context.h>

#include <cstdlib>

namespace moonshard {

DeterminismGuard::DeterminismGuard(bool on)
    : on_(on),
      before_(at::globalContext().deterministicAlgorithms()),
      efficient_attention_before_(at::globalContext().userEnabledMemEfficientSDP()) {
  if (!on_) return;
  // cuBLAS is reproducible only with a fixed workspace, and LibTorch insists on the variable.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  // The memory-efficient kernel's backward sums in no fixed order; flash and plain attention are
  // deterministic.
  at::globalContext().setSDPUseMemEfficient(false);
}

DeterminismGuard::~DeterminismGuard() {
  if (!on_) return;
  at::globalContext().setDeterministicAlgorithms(before_, false);
  at::globalContext().setSDPUseMemEfficient(efficient_attention_before_);
}

}  // namespace moonshard
