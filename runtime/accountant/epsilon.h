// Epsilon of a schedule of noised steps, by the name of a method:
//   rdp       Renyi divergences (rdp.h): a guarantee, quick, a little above the truth
//   prv       privacy loss on a grid that keeps its mean (privacy_loss.h): a bracket of about
//             0.01 either way, of which the upper end is claimed
//   pld       privacy loss on a grid, rounded pessimistically (privacy_loss.h): the tightest
//   guarantee gaussian  closed form; every phase must see all samples (q = 1) gdp       central
//   limit (gaussian.h): often below the truth, an approximation and no guarantee
// All assume Poisson subsampling and add/remove-one-sample neighbours.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "runtime/accountant/gaussian_phase.h"

namespace moonshard::accountant {

struct Epsilon {
  double epsilon = 0;               ///< claimed; infinite without noise
  double best_order = NAN;          ///< of rdp; NaN elsewhere
  double lower = NAN, upper = NAN;  ///< of prv and pld: the truth is between them; NaN elsewhere
  bool guarantee = true;            ///< false: an approximation that must not be claimed
  std::string note;                 ///< a caveat on the number; often empty
};

inline constexpr const char* kApproximationNote = "approximation, not a guarantee";

/// rdp, prv, pld, gdp, gaussian.
const std::vector<std::string>& methods();

/// Throws UsageError for a name that is none of methods().
void check_method(const char* where, const std::string& method);

/// The smallest epsilon that the method proves for the composition of the phases at this delta.
/// `orders` are for rdp only; empty means default_orders(). Throws UsageError for invalid numbers,
/// unknown methods, orders with another method, and gaussian with 0 < q < 1.
Epsilon epsilon_of(const std::string& method, const std::vector<GaussianPhase>& phases,
                   double delta, const std::vector<double>& orders = {});

}  // namespace moonshard::accountant
