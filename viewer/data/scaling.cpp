#include "viewer/data/scaling.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace moonshard::viewer {
namespace {

using Verdict = ScalingFit::Verdict;
using Numbers = std::vector<double>;

constexpr double kMiB = 1048576.0;

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
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i)
    sum += std::pow((fit.offset + fit.slope * u[i] - y[i]) / y[i], 2);
  fit.error = std::sqrt(sum / static_cast<double>(x.size()));
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

// The fastest sample of a phase: growth is a property of the work; what other programs and slower
// ranks add is not.
double phase_ms(const PointDetail* detail, std::string_view name) {
  if (detail == nullptr) return NAN;
  for (const PhaseTime& phase : detail->phases)
    if (phase.name == name) return std::isnan(phase.ms.min) ? phase.ms.median : phase.ms.min;
  return NAN;
}

double norm_part_ms(const PointDetail* detail, std::string_view name) {
  if (detail == nullptr) return NAN;
  for (const PhaseTime& part : detail->norms)
    if (part.name == name) return part.ms.median;
  return NAN;
}

double norms_ms(const PointDetail* detail) {
  if (detail == nullptr || detail->layers.empty()) return norm_part_ms(detail, "local");
  return std::accumulate(detail->layers.begin(), detail->layers.end(), 0.0,
                         [](double sum, const LayerTime& layer) { return sum + layer.norm_ms; });
}

double owner_mib(const PointDetail* detail, std::string_view owner) {
  if (detail == nullptr) return NAN;
  for (const OwnedBytes& row : detail->breakdown)
    if (row.owner == owner) return row.bytes / kMiB;
  return NAN;
}

double first_metric(const RunData& run, size_t point, const char* name, const char* other) {
  const double value = run.metric(point, name);
  return std::isnan(value) ? run.metric(point, other) : value;
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
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (x[i] > 0 && std::isfinite(x[i]) && y[i] > 0 && std::isfinite(y[i]))
      points.emplace_back(x[i], y[i]);
  std::sort(points.begin(), points.end());
  if (points.size() < 2 || points.front().first == points.back().first) return std::nullopt;
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

std::vector<ScalingFamily> scaling_families(const RunData& run, const std::string& axis) {
  std::vector<ScalingFamily> families;
  std::map<std::string, size_t> places;
  for (size_t p = 0; p < run.points.size(); ++p) {
    if (run.points[p].status != "ok") continue;
    std::string name;
    for (const std::string& other : run.axes) {
      if (other == axis) continue;
      const auto column = run.options.find(other);
      name += (name.empty() ? "" : ", ") +
              (column ? plain_text(run, run.options.at(p, *column)) : std::string());
    }
    const auto [place, added] = places.try_emplace(name, families.size());
    if (added) {
      const auto mode = name.empty() ? run.options.find("mode") : std::nullopt;
      families.push_back({mode ? plain_text(run, run.options.at(p, *mode)) : name, {}});
    }
    families[place->second].points.push_back(p);
  }
  return families;
}

const std::vector<ScalingQuantity>& scaling_quantities() {
  using Run = RunData;
  using Detail = PointDetail;
  static const std::vector<ScalingQuantity> list = {
      {"forward", "ms", true,
       [](const Run&, size_t, const Detail* d) { return phase_ms(d, "forward"); }},
      {"backward", "ms", true,
       [](const Run&, size_t, const Detail* d) { return phase_ms(d, "backward"); }},
      {"second backward", "ms", true,
       [](const Run&, size_t, const Detail* d) { return phase_ms(d, "second_backward"); }},
      {"norms", "ms", true, [](const Run&, size_t, const Detail* d) { return norms_ms(d); }},
      {"clipped sum", "ms", true,
       [](const Run&, size_t, const Detail* d) { return phase_ms(d, "clipped_sum"); }},
      {"norm all-reduce", "ms", true,
       [](const Run&, size_t, const Detail* d) {
         const double phase = phase_ms(d, "norm_reduce");
         return std::isnan(phase) ? norm_part_ms(d, "reduce") : phase;
       }},
      {"communication", "ms", false,
       [](const Run& run, size_t p, const Detail*) { return run.metric(p, "comm_work_ms"); }},
      {"communicated", "MiB", false,
       [](const Run& run, size_t p, const Detail*) { return run.metric(p, "comm_bytes") / kMiB; }},
      {"step", "ms", false,
       [](const Run& run, size_t p, const Detail*) {
         return first_metric(run, p, "min_time_ms", "median_time_ms");
       }},
      {"peak memory", "MiB", false,
       [](const Run& run, size_t p, const Detail*) { return run.metric(p, "peak_memory_mb"); }},
      {"activations", "MiB", true,
       [](const Run&, size_t, const Detail* d) { return owner_mib(d, "activations"); }}};
  return list;
}

}  // namespace moonshard::viewer
