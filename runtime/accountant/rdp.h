// Renyi differential privacy of the Poisson-subsampled Gaussian, add or remove one sample.
//   Mironov, Talwar, Zhang: Renyi Differential Privacy of the Sampled Gaussian Mechanism (2019),
//   sections 3.2 (whole orders) and 3.3 (real orders)
//   Balle et al.: Hypothesis Testing Interpretations and Renyi Differential Privacy (2020),
//   theorem 21 (from orders to epsilon)
// Valid only for Poisson subsampling (each sample independently, with probability q): it proves
// nothing for fixed-size batches.
#pragma once

#include <vector>

#include "runtime/accountant/gaussian.h"

namespace moonshard::accountant {

struct RdpEpsilon {
  double epsilon = 0;     ///< infinite without noise
  double best_order = 0;  ///< the order that gave it; at either end of the list, try more orders
};

/// 1.1 to 10.9 by 0.1, then 12 to 63: those of Opacus, so that figures can be compared; then four
/// per octave to 28672, for small epsilons.
std::vector<double> default_orders();

/// Renyi divergence of one step at an order above 1; never below the true one by more than
/// rounding.
double rdp_of_step(double q, double sigma, double order);

/// The smallest epsilon over the orders for which the composition of the phases is (epsilon,
/// delta)-private. Throws UsageError for invalid numbers.
RdpEpsilon rdp_epsilon(const std::vector<GaussianPhase>& phases, double delta,
                       const std::vector<double>& orders = default_orders());

}  // namespace moonshard::accountant
