// Where a training step can be changed from outside, one method per mechanism. A trainer has no
// hooks unless it is given some: `moonshard verify --fault` and `moonshard audit --fault` give one
// that makes a deliberate mistake (runtime/verify/faults.h), to prove that it is found. All
// code paths of a mechanism (fused update, noise for an observer, kept rows, a second pass) call
// the same method.
#pragma once

#include "runtime/models/model.h"
#include "runtime/optim/optimizer.h"
#include "runtime/privacy/clipping.h"

namespace moonshard::privacy {

/// What noise is drawn for, and where.
struct NoisePlace {
  bool is_count = false;  ///< of adaptive clipping's count, not of the gradients
  int64_t samples = 0;    ///< of the step, on all ranks
  int rank = 0, world = 1;
};

/// The default of every method changes nothing.
class StepHooks {
 public:
  virtual ~StepHooks() = default;

  /// Around every step, however it ends.
  virtual void begin_step(models::Model&) {}
  virtual void end_step(models::Model&) {}

  /// Noise of the step and what its sum is divided by.
  virtual void change_noise(optim::NoiseSpec&, const NoisePlace&) {}
  /// Before the gradients of a layer are summed over ranks.
  virtual void before_reduction(const models::ParamLayer&) {}

  /// Whether per-sample norms count this parameter.
  virtual bool counts(const models::Parameter&) const { return true; }
  /// Whether the uses of a tied weight have one norm together, with their cross term.
  virtual bool joins_tied_weights() const { return true; }
  /// Factors [B] of norms [B], of all parameters or of a part whose bound is `share` of C.
  virtual at::Tensor factors(const Clipping& clipping, const at::Tensor& norms, double share,
                             int64_t /*micro_batch*/) const {
    return clipping.factors(norms, share);
  }
};

/// The default: no hooks.
inline StepHooks& no_hooks() {
  static StepHooks hooks;
  return hooks;
}

}  // namespace moonshard::privacy
