// The distribution of a sum of privacy losses on a grid, by Fourier transforms.
//
// Note "tilting": delta is a tail, and the transform's errors are a share of the whole. Hence every
// step's distribution is multiplied by exp(tilt * loss) first, with the tilt that moves the bulk of
// the sum to where delta is decided, and the result by exp(-tilt * loss). Errors then are a share
// of delta itself, be it 1e-5 or 1e-30.
//
// Note "errors": what a bound needs is added up in `error`, in units of exp(log_scale - tilt *
// epsilon), that is of Chernoff's bound on delta:
//   - mass of the tilted sum outside of the window, which the transform folds into it: Chernoff's
//     bound from the masses on the grid
//   - rounding: of every point of a step's spectrum, times what a power makes of it; of the way
//     back, in the 2-norm; then times the 2-norm of the weights that points have in delta
//   - a share per step for the masses on the grid, see StepLoss::integrate
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/accountant/step_loss.h"

namespace moonshard::accountant {

/// Steps of one kind with both of their losses.
struct LossPair {
  StepLoss removed, added;
  double steps;
  const StepLoss& of(Neighbour neighbour) const {
    return neighbour == Neighbour::Removed ? removed : added;
  }
};

/// Where delta is decided, from the cumulants of the sum.
struct Tilt {
  double order = 0;                      ///< the tilt
  double epsilon = 0;                    ///< what it was chosen for, or Chernoff's bound
  double low = 0, high = 0;              ///< the window: nearly all of the tilted sum
  double low_order = 0, high_order = 0;  ///< distances from the tilt at which moments show that
};
/// The tilt of Chernoff's bound at this delta. Of heavy tails it is far from the best.
Tilt tilt_for_delta(const std::vector<LossPair>& steps, Neighbour neighbour, double delta);
/// The tilt that makes Chernoff's bound on delta the least at this epsilon. Neither it nor the
/// distances are above `most_order`.
Tilt tilt_for_epsilon(const std::vector<LossPair>& steps, Neighbour neighbour, double epsilon,
                      double most_order);

/// One direction of the sum: masses of the tilted sum at multiples of `spacing`.
class LossSum {
 public:
  double spacing = 0, tilt = 0, log_scale = 0;
  double error = 0;   ///< see the note "errors"
  int64_t first = 0;  ///< of the window's points; `mass` is circular
  size_t start = 0;   ///< where in `mass` the first one lies
  std::vector<double> mass;

  /// An epsilon from `least` on at which delta is at most this, as small as can be shown; infinite
  /// where nothing can.
  double epsilon_above(double delta, double least) const;
  /// Without regard to errors.
  double epsilon_about(double delta, double least) const;
  /// An epsilon from `least` on at which delta is at least this, as large as can be shown; `least`
  /// where there is none.
  double epsilon_below(double delta, double least) const;

 private:
  double solve(double delta, double least, double error_sign) const;
};

struct LossSums {
  LossSum removed, added;
  double removed_drift = 0, added_drift = 0;  ///< to be added to losses (Rounding::KeepMean)
};
LossSums sum_losses(const std::vector<LossPair>& steps, const Tilt& removed, const Tilt& added,
                    double spacing, Rounding rounding);

}  // namespace moonshard::accountant
