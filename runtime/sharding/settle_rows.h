// A gradient that is not summed yet (Parameter::rows and product), for code that needs the sum:
// reductions over ranks, observers, later micro-batches.
#pragma once

#include "kernels/fused_update/fused_update.h"
#include "runtime/models/parameter.h"
#include "runtime/profile/ledger.h"

namespace moonshard::sharding {

/// Whether there is a gradient, in any form.
inline bool has_gradient(const models::Parameter& parameter) {
  return parameter.grad.defined() || parameter.rows.defined() || parameter.product.defined();
}

/// Adds the parameter's product and weighted rows to its grad and frees them. Does nothing without.
inline void settle_rows(models::Parameter& parameter) {
  if (parameter.product.defined()) {
    kernels::UpdatePart part;
    part.grad = parameter.grad;
    part.product_a = parameter.product.a;
    part.product_g = parameter.product.g;
    part.product_factors = parameter.product.factors;
    kernels::form_product(part);
    parameter.grad = part.grad.view(parameter.value.sizes());
    parameter.product = {};
    profile::claim(parameter.grad, profile::Owner::Gradients);
  }
  if (!parameter.rows.defined()) return;
  parameter.grad =
      kernels::add_weighted_rows(parameter.grad, parameter.rows, parameter.row_factors);
  profile::claim(parameter.grad, profile::Owner::Gradients);
  parameter.rows = parameter.row_factors = at::Tensor();
}

/// The parts that are not summed yet become the other's.
inline void pass_on_unsummed(models::Parameter& from, models::Parameter& to) {
  if (from.rows.defined()) {
    to.rows = from.rows.flatten(1);
    to.row_factors = from.row_factors;
    from.rows = from.row_factors = at::Tensor();
  }
  to.product = from.product;
  from.product = {};
}

inline void forget_gradient(models::Parameter& parameter) {
  parameter.grad = parameter.rows = parameter.row_factors = at::Tensor();
  parameter.product = {};
}

}  // namespace moonshard::sharding
