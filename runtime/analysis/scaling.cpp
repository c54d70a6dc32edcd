#include "runtime/analysis/scaling.h"

#include <algorithm>
#include <compare>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace moonshard::analysis {
namespace {

using Verdict = ScalingFit::Verdict;
using Numbers = std::vector<double>;

constexpr int kCurveSteps = 24;

struct SizedFigure {
  double size, figure;
  auto operator<=>(const SizedFigure&) const = default;
};

struct Line {
  double a, b;
};

// Least squares of v = a + b u with weights; both kept from being negative, as costs are.
Line weighted_line(const Numbers& u, const Numbers& v, const Numbers& weight) {
  double sw = 0, su = 0, sv = 0, suu = 0, suv = 0;
  for (size_t i = 0; i < u.size(); ++i) {
    const double w = weight[i];
    sw += w;
    su += w * u[i];
    sv += w * v[i];
    suu += w * u[i] * u[i];
    suv += w * u[i] * v[i];
  }
  const double determinant = sw * suu - su * su;
  double a = sv / sw, b = 0;
  if (determinant > 0) {
    b = (sw * suv - su * sv) / determinant;
    a = (sv - b * su) / sw;
  }
  if (a < 0) {
    a = 0;
    b = suv / suu;
  }
  if (b < 0) {
    a = sv / sw;
    b = 0;
  }
  return {a, b};
}

// Root of the mean squared relative error of a function of the size.
template <class F>
double relative_error(const Numbers& x, const Numbers& y, const F& value_at) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += std::pow((value_at(x[i]) - y[i]) / y[i], 2);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// By relative errors: a measurement's noise grows with it.
OffsetFit offset_fit(const Numbers& x, const Numbers& y, double power) {
  Numbers u, weight;
  for (size_t i = 0; i < x.size(); ++i) {
    u.push_back(std::pow(x[i], power));
    weight.push_back(1 / (y[i] * y[i]));
  }
  OffsetFit fit;
  fit.power = power;
  const Line line = weighted_line(u, y, weight);
  fit.offset = line.a;
  fit.slope = line.b;
  fit.error = relative_error(x, y, [&](double size) { return fit.at(size); });
  return fit;
}

void fit_power(ScalingFit& fit) {
  const auto n = static_cast<double>(fit.x.size());
  double mean_u = 0, mean_v = 0;
  for (size_t i = 0; i < fit.x.size(); ++i) {
    mean_u += std::log(fit.x[i]);
    mean_v += std::log(fit.y[i]);
  }
  mean_u /= n;
  mean_v /= n;
  double suu = 0, suv = 0;
  for (size_t i = 0; i < fit.x.size(); ++i) {
    const double u = std::log(fit.x[i]) - mean_u;
    suu += u * u;
    suv += u * (std::log(fit.y[i]) - mean_v);
  }
  fit.exponent = suv / suu;
  fit.factor = std::exp(mean_v - fit.exponent * mean_u);
  double residuals = 0;
  for (size_t i = 0; i < fit.x.size(); ++i)
    residuals +=
        std::pow(std::log(fit.y[i]) - mean_v - fit.exponent * (std::log(fit.x[i]) - mean_u), 2);
  if (n > 2) fit.standard_error = std::sqrt(residuals / (n - 2) / suu);
}

Verdict verdict_of(const ScalingFit& fit) {
  const double linear = fit.linear.error, quadratic = fit.quadratic.error;
  // Constant as far as one can see: figures that jump about say nothing.
  if (fit.exponent < kConstantExponent)
    return 2 * fit.standard_error <= kConstantExponent ? Verdict::Constant : Verdict::Undecided;
  // Both fit to the last digit only when the points are too few to tell.
  if (linear < 1e-9 && quadratic < 1e-9) return Verdict::Undecided;
  const auto agrees = [&](double off, double power) {
    return off <= kMostError || std::abs(fit.exponent - power) <= 2 * fit.standard_error;
  };
  if (linear <= kBetterBy * quadratic && agrees(linear, 1)) return Verdict::Linear;
  if (quadratic <= kBetterBy * linear && agrees(quadratic, 2)) return Verdict::Quadratic;
  if (std::min(linear, quadratic) > kMostError && fit.standard_error > kMostStandardError)
    return Verdict::Undecided;
  return Verdict::Between;
}

}  // namespace

const char* verdict_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::Constant:
      return "O(1)";
    case Verdict::Linear:
      return "O(T)";
    case Verdict::Quadratic:
      return "O(T^2)";
    case Verdict::Between:
      return "between";
    case Verdict::Undecided:
      return "undecided";
  }
  return "";
}

std::optional<ScalingFit> fit_scaling(const Numbers& x, const Numbers& y) {
  std::vector<SizedFigure> points;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (x[i] > 0 && std::isfinite(x[i]) && y[i] > 0 && std::isfinite(y[i]))
      points.push_back({x[i], y[i]});
  std::sort(points.begin(), points.end());
  if (points.size() < 2 || points.front().size == points.back().size) return std::nullopt;
  ScalingFit fit;
  for (const auto& [size, figure] : points) {
    fit.x.push_back(size);
    fit.y.push_back(figure);
  }
  fit_power(fit);
  const size_t n = points.size();
  if (fit.x[n - 1] > fit.x[n - 2])
    fit.last_exponent =
        std::log(fit.y[n - 1] / fit.y[n - 2]) / std::log(fit.x[n - 1] / fit.x[n - 2]);
  fit.linear = offset_fit(fit.x, fit.y, 1);
  fit.quadratic = offset_fit(fit.x, fit.y, 2);
  if (n >= 3) fit.verdict = verdict_of(fit);
  return fit;
}

Curve best_curve(const ScalingFit& fit) {
  const double power_error =
      relative_error(fit.x, fit.y, [&](double size) { return fit.power_at(size); });
  const bool has_offset = fit.x.size() > 2 && fit.better().error < power_error;
  const double first = fit.x.front(), last = fit.x.back();
  Curve curve;
  for (int i = 0; i <= kCurveSteps; ++i) {
    const double x = first * std::pow(last / first, static_cast<double>(i) / kCurveSteps);
    curve.x.push_back(x);
    curve.y.push_back(has_offset ? fit.better().at(x) : fit.power_at(x));
  }
  return curve;
}

std::string exponent_text(const ScalingFit& fit) {
  // "-0.00" would only raise questions.
  return fmt::format("T^{:.2f}", std::abs(fit.exponent) < 0.005 ? 0 : fit.exponent);
}

std::vector<Family> families_over(const Table& table, const std::string& axis) {
  std::vector<Family> families;
  std::map<std::string, size_t> places;
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const Row& row = table.rows[r];
    if (!row.ok()) continue;
    std::vector<std::string> others;
    for (size_t a = 0; a < table.axes.size(); ++a)
      if (table.axes[a] != axis) others.push_back(row.shown[a]);
    const std::string name = fmt::format("{}", fmt::join(others, ", "));
    const auto [place, added] = places.try_emplace(name, families.size());
    if (added) families.push_back({name.empty() ? row.mode : name, row.mode, {}});
    families[place->second].rows.push_back(r);
  }
  return families;
}

std::vector<FamilyGrowth> growth_over(const Table& table, const std::string& axis) {
  std::vector<FamilyGrowth> all;
  for (Family& family : families_over(table, axis)) {
    FamilyGrowth growth{std::move(family), {}};
    Numbers x;
    for (const size_t r : growth.family.rows) {
      const auto* size = std::get_if<double>(&table.at(r, axis));
      x.push_back(size == nullptr ? NAN : *size);
    }
    for (const Quantity& quantity : quantities()) {
      Numbers y;
      for (const size_t r : growth.family.rows)
        y.push_back(quantity.read(table.rows[r].metrics, table.rows[r].detail.get()));
      if (auto fit = fit_scaling(x, y)) growth.fits.push_back({&quantity, std::move(*fit)});
    }
    all.push_back(std::move(growth));
  }
  return all;
}

}  // namespace moonshard::analysis
