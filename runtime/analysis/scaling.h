// How a figure grows with a size T: the exponent of y ~ T^p with its error, fits with a fixed cost,
// a verdict. A fixed cost flattens the exponent at short T; the two fits with an offset see through
// that. docs/analysis.md explains the rules.
#pragma once

#include <optional>

#include "runtime/analysis/rows.h"

namespace moonshard::analysis {

/// Below this exponent a quantity counts as constant.
inline constexpr double kConstantExponent = 0.25;
/// A fit counts as the better one when its error is below this share of the other's,
inline constexpr double kBetterBy = 0.67;
/// and when it is itself no further off than this, or the exponent agrees: T^1.5 is nearer to T^2
/// than to T, and neither.
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
/// fewer than two different sizes. The verdict is "undecided" below three points.
std::optional<ScalingFit> fit_scaling(const std::vector<double>& x, const std::vector<double>& y);

/// Places and heights of a line.
struct Curve {
  std::vector<double> x, y;
};
/// The curve that follows the figures best, from the first to the last of them: a power, or a line
/// or parabola with a fixed cost.
Curve best_curve(const ScalingFit& fit);
/// "T^1.02": the exponent beside a curve.
std::string exponent_text(const ScalingFit& fit);

/// Rows with status ok that agree in all axes but one, in the order of the table.
struct Family {
  std::string name;  ///< the values of the other axes, or the mode
  std::string mode;
  std::vector<size_t> rows;
};
std::vector<Family> families_over(const Table& table, const std::string& axis);

struct QuantityFit {
  const Quantity* quantity;
  ScalingFit fit;
};
struct FamilyGrowth {
  Family family;
  std::vector<QuantityFit> fits;  ///< of those quantities that can be fitted
};
/// Fits every quantity of every family.
std::vector<FamilyGrowth> growth_over(const Table& table, const std::string& axis);

}  // namespace moonshard::analysis
