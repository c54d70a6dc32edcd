#include "runtime/accountant/loss_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "runtime/accountant/fft.h"
#include "runtime/base/check.h"

namespace moonshard::accountant {
namespace {

// Relative error of masses on the grid, of either sign: see StepLoss::integrate.
constexpr double kIntegration = 5e-14;
// Log of the share of the tilted sum that may lie on either side of the window.
constexpr double kOutside = -24;

// The least value of a function that falls, then rises, over the logarithm of its argument.
double minimize(double from, double to, const std::function<double(double)>& f, double& place) {
  constexpr double kGolden = 0.6180339887498949;
  double low = std::log(from), high = std::log(to);
  double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
  double fa = f(std::exp(a)), fb = f(std::exp(b));
  for (int i = 0; i < 40; ++i) {
    if (fa < fb || std::isnan(fb)) {
      high = b, b = a, fb = fa;
      a = high - kGolden * (high - low);
      fa = f(std::exp(a));
    } else {
      low = a, a = b, fa = fb;
      b = low + kGolden * (high - low);
      fb = f(std::exp(b));
    }
  }
  place = std::exp(fa < fb ? a : b);
  return std::min(fa, fb);
}

double log_moment(const std::vector<LossPair>& steps, Neighbour neighbour, double order) {
  double sum = 0;
  for (const LossPair& step : steps) sum += step.steps * step.of(neighbour).log_moment(order);
  return sum;
}

// One step's tilted distribution, on a circle of `size` points.
struct Tilted {
  double log_scale = 0;                    // log of its moment
  double low_moment = 0, high_moment = 0;  // log moments at the orders that bound the window
  int64_t centre = 0;                      // the point that comes to lie at 0
};

Tilted lay_tilted(const StepLoss& step_loss, const LatticeLoss& loss, const Tilt& tilt,
                  double spacing, std::vector<double>& circle) {
  Tilted result;
  // The moments of the step itself, nearly: what is summed is near 1 and overflows nowhere.
  const double guess = step_loss.log_moment(tilt.order);
  const double low_order = tilt.order - tilt.low_order, high_order = tilt.order + tilt.high_order;
  const double low_guess = step_loss.log_moment(low_order);
  const double high_guess = step_loss.log_moment(high_order);
  std::vector<double> share(loss.mass.size());
  double sum = 0, mean = 0;
  const double step = tilt.order * spacing;
  for (size_t i = 0; i < share.size(); ++i) {
    const double point = static_cast<double>(loss.first) + static_cast<double>(i);
    share[i] = loss.mass[i] * std::exp(step * point - guess);
    sum += share[i];
    mean += share[i] * point;
  }
  result.log_scale = guess + std::log(sum);
  result.centre = std::llround(mean / sum);
  double low = 0, high = 0;
  const size_t mask = circle.size() - 1;
  std::fill(circle.begin(), circle.end(), 0.0);
  for (size_t i = 0; i < share.size(); ++i) {
    share[i] /= sum;
    const int64_t point = loss.first + static_cast<int64_t>(i) - result.centre;
    const double place = spacing * (static_cast<double>(loss.first) + static_cast<double>(i));
    low += loss.mass[i] * std::exp(low_order * place - low_guess);
    high += loss.mass[i] * std::exp(high_order * place - high_guess);
    circle[static_cast<size_t>(point) & mask] += share[i];
  }
  result.low_moment = low_guess + std::log(low) - result.log_scale;
  result.high_moment = high_guess + std::log(high) - result.log_scale;
  return result;
}

// Returns the magnitude at the power minus one: the factor that errors are multiplied with.
double raise(double& re, double& im, double power) {
  const double square = re * re + im * im;
  const double log_size = power * 0.5 * std::log(square);
  if (!(log_size > -60)) {
    re = im = 0;
    return power == 1 ? 1 : 0;
  }
  const double size = std::exp(log_size), turn = power * std::atan2(im, re);
  re = size * std::cos(turn);
  im = size * std::sin(turn);
  return size / std::sqrt(square);
}

double raise_real(double value, double power) {
  const double size = std::pow(std::abs(value), power);
  return value < 0 && std::fmod(power, 2) != 0 ? -size : size;
}

// Two real sequences are packed as the parts of a complex one. Unpacked, frequency j of the first
// lies at the index of j and that of the second at the index of -j; of indices 0 and 1, which are
// real, in the two parts.
void take_apart(std::vector<double>& re, std::vector<double>& im) {
  for (size_t place = 2; place < re.size(); ++place) {
    const size_t other = Fft::mirrored(place);
    if (other < place) continue;
    const double a = re[place], b = im[place], c = re[other], d = im[other];
    re[place] = (a + c) / 2, im[place] = (b - d) / 2;
    re[other] = (b + d) / 2, im[other] = (c - a) / 2;
  }
}

void put_together(std::vector<double>& re, std::vector<double>& im) {
  for (size_t place = 2; place < re.size(); ++place) {
    const size_t other = Fft::mirrored(place);
    if (other < place) continue;
    const double a = re[place], b = im[place], c = re[other], d = im[other];
    re[place] = a - d, im[place] = b + c;
    re[other] = a + d, im[other] = c - b;
  }
}

struct Spectrum {
  std::vector<double> re, im;
};

// The spectrum of all steps of one kind, times what was there. Gives the 2-norm, per point, of what
// errors of the single step's spectrum are multiplied with, except for the power itself: at most
// twice the size at the power less one, with a floor for sizes that errors are larger than.
double multiply_power(Spectrum& all, Spectrum& one, double power, bool first) {
  constexpr double kFloor = 1e-12;
  one.re[0] = raise_real(one.re[0], power), one.im[0] = raise_real(one.im[0], power);
  one.re[1] = raise_real(one.re[1], power), one.im[1] = raise_real(one.im[1], power);
  double squares = 4;
  for (size_t i = 2; i < one.re.size(); ++i) {
    const double size = std::max(kFloor, raise(one.re[i], one.im[i], power));
    squares += size * size;
  }
  const double growth = 2 * std::sqrt(squares / static_cast<double>(one.re.size()));
  if (first) {
    std::swap(all, one);
    return growth;
  }
  all.re[0] *= one.re[0], all.im[0] *= one.im[0];
  all.re[1] *= one.re[1], all.im[1] *= one.im[1];
  for (size_t i = 2; i < one.re.size(); ++i) {
    const double re = all.re[i] * one.re[i] - all.im[i] * one.im[i];
    all.im[i] = all.re[i] * one.im[i] + all.im[i] * one.re[i];
    all.re[i] = re;
  }
  return growth;
}

// Checks the integration rules every time: the only mass missing is what was cut off.
void check_mass(const LatticeLoss& loss, const StepLoss& step) {
  double sum = 0, rest = 0;  // compensated summation
  for (const double mass : loss.mass) {
    const double next = sum + mass;
    rest += std::abs(sum) >= mass ? (sum - next) + mass : (mass - next) + sum;
    sum = next;
  }
  sum += rest;
  MS_ASSERT(sum <= 1 + kIntegration && sum >= 1 - step.outside() - kIntegration,
            "a step's loss has the mass {:.17g}", sum);
}

}  // namespace

namespace {

// log of the most that x -> exp(order x) has to be multiplied with to be above the weight of losses
// in delta.
double log_weight(double order) {
  return order * std::log(order) - (1 + order) * std::log1p(order);
}

void choose_window(const std::vector<LossPair>& steps, Neighbour neighbour, double most_order,
                   Tilt& tilt) {
  const double base = log_moment(steps, neighbour, tilt.order);
  const double reach = std::max(1.0, tilt.order), most = std::min(30 * reach, most_order);
  const auto bound = [&](double away, double sign) {
    return (log_moment(steps, neighbour, tilt.order + sign * away) - base - kOutside) / away;
  };
  tilt.high = minimize(
      1e-4 * most, most, [&](double more) { return bound(more, 1); }, tilt.high_order);
  tilt.low = -minimize(
      1e-4 * most, most, [&](double less) { return bound(less, -1); }, tilt.low_order);
}

}  // namespace

Tilt tilt_for_delta(const std::vector<LossPair>& steps, Neighbour neighbour, double delta) {
  Tilt tilt;
  // Bounded losses would be tilted without limit, for no gain.
  const auto chernoff = [&](double order) {
    const double epsilon =
        (log_moment(steps, neighbour, order) - std::log(delta) + log_weight(order)) / order;
    const double ample = 20 * (std::max(1.0, epsilon) - std::log(delta));
    return epsilon + std::max(0.0, epsilon * (order * epsilon / ample - 1));
  };
  tilt.epsilon = std::max(0.0, minimize(1e-3, 1e9, chernoff, tilt.order));
  choose_window(steps, neighbour, 1e9, tilt);
  return tilt;
}

Tilt tilt_for_epsilon(const std::vector<LossPair>& steps, Neighbour neighbour, double epsilon,
                      double most_order) {
  Tilt tilt;
  tilt.epsilon = epsilon;
  minimize(
      1e-3, most_order,
      [&](double order) {
        return log_moment(steps, neighbour, order) + log_weight(order) - order * epsilon;
      },
      tilt.order);
  choose_window(steps, neighbour, most_order, tilt);
  return tilt;
}

LossSums sum_losses(const std::vector<LossPair>& steps, const Tilt& removed, const Tilt& added,
                    double spacing, Rounding rounding) {
  LossSums sums;
  const double width = std::max(removed.high - removed.low, added.high - added.low);
  const auto size = std::bit_ceil(static_cast<size_t>(width / spacing) + 8);
  const Fft fft(size);

  Spectrum all, one;
  // Of each sum: where its 0 lies, what lies outside of its window, the weight of rounding.
  int64_t centres[2] = {0, 0};
  double below[2] = {0, 0}, above[2] = {0, 0};
  double grown = 0, turns = 0;
  for (size_t k = 0; k < steps.size(); ++k) {
    one.re.resize(size);
    one.im.resize(size);
    for (const Neighbour neighbour : {Neighbour::Removed, Neighbour::Added}) {
      const bool first = neighbour == Neighbour::Removed;
      const Tilt& tilt = first ? removed : added;
      const StepLoss& step = steps[k].of(neighbour);
      const LatticeLoss loss = step.on_lattice(spacing, rounding);
      check_mass(loss, step);
      const Tilted laid = lay_tilted(step, loss, tilt, spacing, first ? one.re : one.im);
      (first ? sums.removed_drift : sums.added_drift) += steps[k].steps * loss.drift;
      (first ? sums.removed : sums.added).log_scale += steps[k].steps * laid.log_scale;
      centres[first ? 0 : 1] += static_cast<int64_t>(steps[k].steps) * laid.centre;
      below[first ? 0 : 1] += steps[k].steps * laid.low_moment;
      above[first ? 0 : 1] += steps[k].steps * laid.high_moment;
    }
    fft.forward(one.re.data(), one.im.data());
    take_apart(one.re, one.im);
    grown += steps[k].steps * multiply_power(all, one, steps[k].steps, k == 0);
    turns += steps[k].steps;
  }
  put_together(all.re, all.im);
  fft.inverse(all.re.data(), all.im.data());

  const double scale = 1 / static_cast<double>(size);
  double squares = 0;
  for (std::vector<double>* part : {&all.re, &all.im}) {
    for (double& value : *part) {
      value *= scale;
      squares += value * value;
    }
  }
  constexpr double kUnit = std::numeric_limits<double>::epsilon();
  // The two sequences add up to 2. A power is a logarithm, an angle and the way back.
  const double rounding_error = grown * (2 * fft.relative_error() + 8 * kUnit) +
                                fft.relative_error() * std::sqrt(squares) + 1e-25;
  // Masses on the grid and the scale: every step's share of error hits all of the sum.
  const double common_error = turns * (kIntegration + 16 * kUnit);
  for (const bool first : {true, false}) {
    LossSum& sum = first ? sums.removed : sums.added;
    const Tilt& tilt = first ? removed : added;
    sum.spacing = spacing;
    sum.tilt = tilt.order;
    // The sum on the grid lies lower than the true one by the drift.
    const double drift = first ? sums.removed_drift : sums.added_drift;
    sum.first = static_cast<int64_t>(std::floor((tilt.low - drift) / spacing)) - 1;
    sum.mass = std::move(first ? all.re : all.im);
    const int64_t centre = centres[first ? 0 : 1];
    sum.start = static_cast<size_t>(sum.first - centre) & (size - 1);
    const double top = static_cast<double>(sum.first + static_cast<int64_t>(size)) * spacing;
    const double bottom = static_cast<double>(sum.first) * spacing;
    const double folded = std::exp(above[first ? 0 : 1] - tilt.high_order * top) +
                          std::exp(below[first ? 0 : 1] + tilt.low_order * bottom);
    // Weights are at most exp(-tilt * distance), and at most 1.
    const double weights =
        std::min(static_cast<double>(size), 1 - 1 / std::expm1(-2 * sum.tilt * spacing));
    sum.error = folded + common_error + rounding_error * std::sqrt(weights);
  }
  return sums;
}

// Walks down from the top. With t the point above epsilon,
//   delta = exp(log_scale - tilt * epsilon) * sum over points p >= t of
//           mass * exp(-tilt * (p - epsilon)) * (1 - exp(-(p - epsilon)));
// both sums below are of that form with epsilon = t, one without the last factor and one rid of
// the first term; all terms are positive.
double LossSum::solve(double delta, double least, double error_sign) const {
  const double fall = std::exp(-tilt * spacing), sharper = std::exp(-(tilt + 1) * spacing);
  const double lift = -std::expm1(-spacing);
  const size_t size = mass.size(), mask = size - 1;
  const double log_delta = std::log(delta);
  // Whether the bound is above delta at epsilon = t - distance, where the sums are those of t. NaN
  // counts as above.
  const auto exceeds = [&](double t, double distance, double gap, double sharp) {
    const double inside = std::exp(-tilt * distance) * (gap + sharp - std::exp(-distance) * sharp) +
                          error_sign * error;
    const double allowed = std::exp(log_delta - log_scale + tilt * (t - distance));
    return error_sign > 0 ? !(inside <= allowed) : inside > allowed;
  };
  const double top = static_cast<double>(first + static_cast<int64_t>(size)) * spacing;
  if (error_sign > 0 && exceeds(top, 0, 0, 0)) return std::numeric_limits<double>::infinity();
  double gap = 0, sharp = 0;  // sum of terms with (1 - exp(-..)), and with exp(-(tilt + 1) ..)
  for (size_t i = size; i-- > 0;) {
    const double t = static_cast<double>(first + static_cast<int64_t>(i)) * spacing;
    const double above = t + spacing;
    // What lies between t and the next point, if delta is crossed there or `least` is reached.
    const bool last = t <= least || i == 0;
    const double gap_here = fall * (gap + lift * sharp);
    const bool crossed = exceeds(t, 0, gap_here, 0);
    if (crossed || last) {
      double near = 0, far = std::min(spacing, above - std::max(least, t));
      if (far <= 0) return least;
      if (!exceeds(above, far, gap, sharp)) return error_sign >= 0 ? above - far : least;
      for (int round = 0; round < 60; ++round) {
        const double middle = (near + far) / 2;
        (exceeds(above, middle, gap, sharp) ? far : near) = middle;
      }
      return above - (error_sign > 0 ? near : far);
    }
    gap = gap_here;
    sharp = mass[(start + i) & mask] + sharper * sharp;
  }
  return least;
}

double LossSum::epsilon_above(double delta, double least) const {
  return solve(delta, least, 1);
}

double LossSum::epsilon_about(double delta, double least) const {
  return solve(delta, least, 0);
}

double LossSum::epsilon_below(double delta, double least) const {
  return solve(delta, least, -1);
}

}  // namespace moonshard::accountant
