// How a figure grows with a size T: the exponent of y ~ T^p, fits with a fixed cost, a verdict. The
// same rules and limits as scripts/moonshard/analyze/scaling.lua, so that the window and the script
// say the same; docs/analysis.md explains them.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "viewer/data/point_detail.h"
#include "viewer/data/run_data.h"

namespace moonshard::viewer {

/// Below this exponent a quantity counts as constant.
inline constexpr double kConstantExponent = 0.25;
/// A fit counts as the better one when its error is below this share of the other's,
inline constexpr double kBetterBy = 0.67;
/// and when it is itself no further off than this, or the exponent agrees.
inline constexpr double kMostError = 0.15;
/// Beyond both this standard error and kMostError, figures are noise and nothing is decided.
inline constexpr double kMostStandardError = 0.15;

/// y = offset + slope T^power, both at least 0, by relative errors.
struct OffsetFit {
  double offset = 0, slope = 0, power = 1;
  double error = 0;  ///< root of the mean squared relative error
  double at(double x) const { return offset + slope * std::pow(x, power); }
};

struct ScalingFit {
  enum class Verdict { Constant, Linear, Quadratic, Between, Undecided };
  std::vector<double> x, y;         ///< what took part, by size
  double exponent = 0, factor = 0;  ///< y = factor x^exponent
  double standard_error = NAN;      ///< of the exponent; NaN below three points
  double last_exponent = NAN;       ///< of the two largest sizes
  OffsetFit linear, quadratic;
  Verdict verdict = Verdict::Undecided;
  const OffsetFit& better() const { return linear.error <= quadratic.error ? linear : quadratic; }
  double power_at(double size) const { return factor * std::pow(size, exponent); }
};

/// "O(1)", "O(T)", "O(T^2)", "between", "undecided".
const char* verdict_text(ScalingFit::Verdict verdict);

/// Fits figures against sizes. Pairs that are not positive and finite take no part; nothing with
/// fewer than two different sizes.
std::optional<ScalingFit> fit_scaling(const std::vector<double>& x, const std::vector<double>& y);

/// Points with status ok that agree in all axes but one.
struct ScalingFamily {
  std::string name;  ///< the values of the other axes, or the mode
  std::vector<size_t> points;
};
std::vector<ScalingFamily> scaling_families(const RunData& run, const std::string& axis);

/// What can be fitted. `detail` may be missing; quantities that need it are then NaN.
struct ScalingQuantity {
  const char *name, *unit;
  bool needs_detail;
  double (*read)(const RunData& run, size_t point, const PointDetail* detail);
};
const std::vector<ScalingQuantity>& scaling_quantities();

}  // namespace moonshard::viewer
