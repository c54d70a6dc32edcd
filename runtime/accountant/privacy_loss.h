// Epsilon by the distribution of the privacy loss, in a bracket that holds the true one. Both
// neighbours are computed, the sample added and removed, and the worse one counts.
//
//   prv   losses go to the nearest point of a grid whose mean is then put right. By Hoeffding's
//         inequality the sum is off by more than `error` only with a chance of delta / 6000, so
//         that the truth lies between epsilon(delta * 1.001) - error and
//         epsilon(delta * 0.999) + error of the grid: Gopi, Lee, Wutschitz (2021), theorem 5.5.
//         error is 0.01, less for small budgets, more where the grid would grow too large.
//   pld   losses go to both neighbouring points, which dominates: epsilon of the grid is an upper
//         bound as it is, typically 1e-4 of it above the truth. The lower end is Hoeffding's.
//
// Beyond that both count what lies outside of the computed range as infinite loss, and all errors
// of the composition as delta (loss_sum.h). Where that gives more than Renyi's bound, as for
// budgets of hundreds, Renyi's is the upper end.
#pragma once

#include <string>
#include <vector>

#include "runtime/accountant/gaussian.h"

namespace moonshard::accountant {

struct Bracket {
  double lower = 0, upper = 0;
  std::string note;
};

Bracket prv_bracket(const std::vector<GaussianPhase>& phases, double delta);
Bracket pld_bracket(const std::vector<GaussianPhase>& phases, double delta);

}  // namespace moonshard::accountant
