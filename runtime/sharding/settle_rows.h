// A gradient that is not summed yet (Parameter::rows), for code that needs the sum: reductions over
// ranks, observers, later micro-batches.
#pragma once

#include "kernels/fused_update/fused_update.h"
#include "runtime/models/parameter.h"
#include "runtime/profile/ledger.h"

namespace moonshard::sharding {

/// Adds the parameter's weighted rows to its grad and frees them. Does nothing without rows.
inline void settle_rows(models::Parameter& parameter) {
  if (!parameter.rows.defined()) return;
  parameter.grad =
      kernels::add_weighted_rows(parameter.grad, parameter.rows, parameter.row_factors);
  profile::claim(parameter.grad, profile::Owner::Gradients);
  parameter.rows = parameter.row_factors = at::Tensor();
}

inline void forget_gradient(models::Parameter& parameter) {
  parameter.grad = parameter.rows = parameter.row_factors = at::Tensor();
}

}  // namespace moonshard::sharding
