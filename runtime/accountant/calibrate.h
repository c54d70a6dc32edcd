// The noise, the number of steps or the sampling rate that a budget allows. Answers err on the safe
// side: epsilon_of() of the answer was computed and is at most the target.
#pragma once

#include <string>
#include <vector>

#include "runtime/accountant/gaussian.h"

namespace moonshard::accountant {

/// How far epsilon may stay below the target. 0 means the finest that suits the method.
struct CalibrateOptions {
  double epsilon_tolerance = 0;
  /// Spent beside the steps, whatever their noise is: part of every epsilon that is compared with
  /// the target. For calibrate_sigma.
  std::vector<GaussianPhase> beside = {};
};

/// The least noise multiplier, to within the tolerance on epsilon. Throws UsageError where even
/// kMostSigma is not enough, with the least epsilon that can be reached.
double calibrate_sigma(const std::string& method, double q, double steps, double delta,
                       double target_epsilon, const CalibrateOptions& options = {});

/// The largest whole number of steps, at most kMostSteps. Throws UsageError where the first step
/// is too much.
double calibrate_steps(const std::string& method, double q, double sigma, double delta,
                       double target_epsilon);

/// The largest sampling rate up to 1, to within the tolerance on epsilon. Throws UsageError where
/// no rate above kLeastRate will do.
double calibrate_q(const std::string& method, double sigma, double steps, double delta,
                   double target_epsilon, const CalibrateOptions& options = {});

inline constexpr double kMostSigma = 1e6;
inline constexpr double kMostSteps = 1e12;
inline constexpr double kLeastRate = 1e-12;

}  // namespace moonshard::accountant
