// The parts of the sums of losses, each against what it is by definition: tails and moments of one
// step, tilts and windows of many.
#include "runtime/accountant/step_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numbers>

#include <fmt/format.h>

#include "runtime/accountant/fft.h"
#include "runtime/accountant/gaussian.h"
#include "runtime/accountant/loss_sum.h"
#include "runtime/accountant/rdp.h"

namespace moonshard::accountant {
namespace {

constexpr double kCutOff = 1e-30;  // of a step's losses

double normal_above(double x) {
  return 0.5 * std::erfc(x / std::numbers::sqrt2);
}

struct OneStep {
  double q, sigma;
  // The x at which the logarithm of how much likelier it is with the sample is this.
  double x_at(double log_ratio) const {
    if (log_ratio <= std::log1p(-q)) return -kInfinity;
    // Without 1 - q, or where it is nothing beside the rest.
    const double exponent =
        q == 1 || log_ratio > 100 ? log_ratio - std::log(q) : std::log1p(std::expm1(log_ratio) / q);
    return sigma * sigma * exponent + 0.5;
  }
  // The chance of a loss above this one.
  double above(Neighbour neighbour, double loss) const {
    if (neighbour == Neighbour::Added) return normal_above(-x_at(-loss) / sigma);
    const double x = x_at(loss);
    return (1 - q) * normal_above(x / sigma) + q * normal_above((x - 1) / sigma);
  }
  // log E exp(order * loss), by the trapezoidal rule.
  double log_moment(Neighbour neighbour, double order) const {
    const double step = std::min(sigma, sigma * sigma) / 16;
    double sum = 0;
    for (double x = -14 * sigma; x < 14 * sigma + 1 + order; x += step) {
      const double ratio = std::log1p(q * std::expm1((2 * x - 1) / (2 * sigma * sigma)));
      const double power = neighbour == Neighbour::Removed ? order + 1 : -order;
      sum += std::exp(power * ratio - x * x / (2 * sigma * sigma));
    }
    return std::log(sum * step / (sigma * std::sqrt(2 * std::numbers::pi)));
  }
};

const OneStep kSteps[] = {{0.01, 1}, {0.3, 0.5},  {1, 2},     {1, 0.1},
                          {0.9, 5},  {0.5, 0.04}, {1e-4, 0.8}};

TEST(StepLosses, OnAGridEveryTailIsThatOfTheLoss) {
  for (const OneStep& step : kSteps) {
    for (const Neighbour neighbour : {Neighbour::Removed, Neighbour::Added}) {
      const StepLoss loss(neighbour, step.q, step.sigma, 1e-13);
      const double spacing = std::max(0.02, (loss.highest() - loss.lowest()) / 50);
      const LatticeLoss lattice = loss.on_lattice(spacing, Rounding::KeepMean);
      double tail = 0;
      for (size_t i = lattice.mass.size(); i-- > 0;) {
        tail += lattice.mass[i];
        const double from = (static_cast<double>(lattice.first + static_cast<int64_t>(i)) - 0.5);
        EXPECT_NEAR(tail, step.above(neighbour, from * spacing), 3e-13)
            << fmt::format("q {} sigma {} loss {}", step.q, step.sigma, from * spacing);
      }
      EXPECT_NEAR(tail, 1, 3e-13);
    }
  }
}

// Either rounding keeps a mean: that of the loss, with the drift, or that of exp(-loss).
TEST(StepLosses, RoundingKeepsTheMeanThatItPromises) {
  for (const OneStep& step : {OneStep{0.01, 1}, {0.3, 0.5}, {1, 2}, {0.9, 5}}) {
    for (const Neighbour neighbour : {Neighbour::Removed, Neighbour::Added}) {
      const StepLoss loss(neighbour, step.q, step.sigma, kCutOff);
      const double spacing = (loss.highest() - loss.lowest()) / 40;
      const LatticeLoss nearest = loss.on_lattice(spacing, Rounding::KeepMean);
      const LatticeLoss upwards = loss.on_lattice(spacing, Rounding::Upwards);
      const auto mean = [&](const LatticeLoss& lattice, auto&& of) {
        double sum = 0;
        for (size_t i = 0; i < lattice.mass.size(); ++i)
          sum += lattice.mass[i] *
                 of(static_cast<double>(lattice.first + static_cast<int64_t>(i)) * spacing);
        return sum;
      };
      // The slope of the log moments at 0.
      const double expected =
          (step.log_moment(neighbour, 1e-4) - step.log_moment(neighbour, -1e-4)) / 2e-4;
      EXPECT_NEAR(mean(nearest, [](double x) { return x; }) + nearest.drift, expected, 1e-7);
      EXPECT_NEAR(mean(upwards, [](double x) { return std::exp(-x); }), 1, 1e-9);
      EXPECT_GT(mean(upwards, [](double x) { return x; }), expected) << "it dominates";
    }
  }
}

TEST(StepLosses, MomentsAreThoseOfTheLoss) {
  for (const OneStep& step : {OneStep{0.01, 1}, {0.3, 0.7}, {1, 2}, {0.9, 5}}) {
    const StepLoss removed(Neighbour::Removed, step.q, step.sigma, kCutOff);
    const StepLoss added(Neighbour::Added, step.q, step.sigma, kCutOff);
    for (const double order : {0.5, 1.0, 2.0, 3.0}) {
      SCOPED_TRACE(fmt::format("q {} sigma {} order {}", step.q, step.sigma, order));
      const double expected = step.log_moment(Neighbour::Removed, order);
      EXPECT_NEAR(removed.log_moment(order), expected, 1e-6);
      EXPECT_NEAR(order * rdp_of_step(step.q, step.sigma, order + 1), expected, 1e-9);
      EXPECT_NEAR(added.log_moment(order), step.log_moment(Neighbour::Added, order), 1e-6);
    }
  }
}

// ---- sums -------------------------------------------------------------------------------------

std::vector<LossPair> steps_of(double q, double sigma, double steps, double outside = 1e-20) {
  std::vector<LossPair> pairs;
  pairs.push_back({StepLoss(Neighbour::Removed, q, sigma, outside),
                   StepLoss(Neighbour::Added, q, sigma, outside), steps});
  return pairs;
}

// Log of the least factor at which exp(order * (x - epsilon)) is nowhere below what x adds to
// delta, 1 - exp(-(x - epsilon)).
double least_factor(double order) {
  const double x = std::log1p(1 / order);
  return std::log(-std::expm1(-x)) - order * x;
}

TEST(Tilts, MakeChernoffsBoundTheLeast) {
  for (const OneStep& step : {OneStep{0.01, 1}, {0.2, 2}, {1, 30}}) {
    const auto pairs = steps_of(step.q, step.sigma, 500);
    for (const Neighbour neighbour : {Neighbour::Removed, Neighbour::Added}) {
      const auto moment = [&](double order) {
        return 500 * pairs[0].of(neighbour).log_moment(order) + least_factor(order);
      };
      const double epsilon = 1.5;
      const double order = tilt_for_epsilon(pairs, neighbour, epsilon, 1e3).order;
      for (const double factor : {0.99, 1.01})
        EXPECT_LE(moment(order) - order * epsilon,
                  moment(factor * order) - factor * order * epsilon);
      const Tilt chosen = tilt_for_delta(pairs, neighbour, 1e-6);
      const auto bound = [&](double at) { return (moment(at) - std::log(1e-6)) / at; };
      EXPECT_NEAR(chosen.epsilon, bound(chosen.order), 1e-9);
      for (const double factor : {0.99, 1.01})
        EXPECT_LE(chosen.epsilon, bound(factor * chosen.order));
    }
  }
}

// The loss of a sample that was added is at most -log(1 - q), which no tilt can beat.
TEST(Tilts, OfBoundedLossesAreNotWithoutLimit) {
  const Tilt tilt = tilt_for_delta(steps_of(0.01, 1, 1), Neighbour::Added, 1e-9);
  EXPECT_GT(tilt.epsilon, 0);
  EXPECT_LT(tilt.epsilon, 1.2 * -std::log1p(-0.01));
  EXPECT_LT(tilt.order * tilt.epsilon, 25 * (1 - std::log(1e-9)));
}

// A tilted Gaussian is one with another mean, so that its window is known.
TEST(Tilts, HaveTheWindowThatHoldsAllButALittle) {
  for (const double mu : {0.05, 0.5, 3.0}) {
    const double steps = 100, sigma = std::sqrt(steps) / mu;
    const auto pairs = steps_of(1, sigma, steps, 1e-60);
    for (const Neighbour neighbour : {Neighbour::Removed, Neighbour::Added}) {
      const Tilt tilt = tilt_for_epsilon(pairs, neighbour, 2 * mu, 1e6);
      const double middle = mu * mu / 2 + tilt.order * mu * mu;
      EXPECT_NEAR(tilt.high, middle + std::sqrt(48) * mu, 1e-6 * mu) << mu;
      EXPECT_NEAR(tilt.low, middle - std::sqrt(48) * mu, 1e-6 * mu) << mu;
      EXPECT_NEAR(tilt.high_order * mu, std::sqrt(48), 1e-3) << mu;
      EXPECT_NEAR(tilt.low_order * mu, std::sqrt(48), 1e-3) << mu;
    }
  }
}

// On a fine grid the three answers differ by errors alone, and those are small; a window that were
// too narrow, or errors left out, would show.
TEST(LossSumsOfGaussians, AreBracketedTightly) {
  for (const double mu : {0.3, 1.0, 4.0}) {
    const double steps = 64, sigma = std::sqrt(steps) / mu, delta = 1e-7;
    const auto pairs = steps_of(1, sigma, steps, 1e-18);
    const double exact = gaussian_epsilon(mu, delta), spacing = mu / 4000;
    const LossSums sums = sum_losses(pairs, tilt_for_epsilon(pairs, Neighbour::Removed, exact, 1e4),
                                     tilt_for_epsilon(pairs, Neighbour::Added, exact, 1e4), spacing,
                                     Rounding::KeepMean);
    for (const LossSum* sum : {&sums.removed, &sums.added}) {
      const double drift = sum == &sums.removed ? sums.removed_drift : sums.added_drift;
      const double about = sum->epsilon_about(delta, 0) + drift;
      EXPECT_NEAR(about, exact, 1e-5 * exact);
      EXPECT_GT(sum->epsilon_above(delta, 0) + drift, about);
      EXPECT_LT(sum->epsilon_below(delta, 0) + drift, about);
      EXPECT_NEAR(sum->epsilon_above(delta, 0) + drift, about, 1e-8 * exact);
      EXPECT_NEAR(sum->epsilon_below(delta, 0) + drift, about, 1e-8 * exact);
      EXPECT_GT(sum->error, 64 * 5e-14) << "a share of every step";
      EXPECT_LT(sum->error, 1e-9);
      const double least = 0.95 * exact;
      EXPECT_EQ(sum->epsilon_above(0.999, least), least) << "all that is asked for";
      EXPECT_EQ(sum->epsilon_below(0.999, least), least);
      EXPECT_TRUE(std::isinf(sum->epsilon_above(1e-300, 0))) << "cannot be shown";
    }
  }
}

// Masses on a grid, by the point: those of two sums of losses together.
using Masses = std::map<int64_t, double>;

Masses convolved(const Masses& a, const Masses& b) {
  Masses result;
  for (const auto& [point, mass] : a)
    for (const auto& [other, share] : b) result[point + other] += mass * share;
  return result;
}

// Losses in two heaps, far apart: half of all frequencies are negative there, so that the sign of
// every power shows, and grids of some points only.
TEST(LossSums, AreConvolutionsOfTheirSteps) {
  for (const double steps : {1.0, 2.0, 3.0, 4.0}) {
    const double spacing = 25, order = 0.003;
    std::vector<LossPair> pairs = steps_of(0.5, 0.1, steps, 1e-14);
    pairs.push_back(steps_of(0.2, 0.12, 2, 1e-14)[0]);
    for (const Rounding rounding : {Rounding::KeepMean, Rounding::Upwards}) {
      Tilt tilts[2];
      for (Tilt& tilt : tilts) {
        const Neighbour neighbour = &tilt == &tilts[0] ? Neighbour::Removed : Neighbour::Added;
        tilt.order = order, tilt.low_order = tilt.high_order = order / 2;
        for (const LossPair& pair : pairs) {
          tilt.low += pair.steps * (pair.of(neighbour).lowest() - spacing);
          tilt.high += pair.steps * (pair.of(neighbour).highest() + spacing);
        }
      }
      const LossSums sums = sum_losses(pairs, tilts[0], tilts[1], spacing, rounding);
      for (const Neighbour neighbour : {Neighbour::Removed, Neighbour::Added}) {
        const LossSum& sum = neighbour == Neighbour::Removed ? sums.removed : sums.added;
        Masses expected{{0, 1}};
        for (const LossPair& pair : pairs) {
          const LatticeLoss lattice = pair.of(neighbour).on_lattice(spacing, rounding);
          Masses one;
          for (size_t i = 0; i < lattice.mass.size(); ++i)
            one[lattice.first + static_cast<int64_t>(i)] = lattice.mass[i];
          for (int i = 0; i < pair.steps; ++i) expected = convolved(expected, one);
        }
        for (size_t i = 0; i < sum.mass.size(); ++i) {
          const int64_t point = sum.first + static_cast<int64_t>(i);
          const double tilted = expected[point] * std::exp(order * spacing * point - sum.log_scale);
          EXPECT_NEAR(sum.mass[(sum.start + i) % sum.mass.size()], tilted, 1e-12)
              << steps << " steps, point " << point;
        }
      }
    }
  }
}

// Of one step the spectrum's errors are multiplied with nothing but the two parts of a complex
// number, so that every term of the note "errors" is known.
TEST(LossSums, CountEveryErrorOfTheNote) {
  const auto pairs = steps_of(0.3, 1, 1);
  Tilt tilt;
  tilt.order = 2, tilt.low_order = tilt.high_order = 20;
  tilt.low = -60, tilt.high = 60;
  const double spacing = 0.01, unit = std::numeric_limits<double>::epsilon();
  const LossSums sums = sum_losses(pairs, tilt, tilt, spacing, Rounding::Upwards);
  const double points = static_cast<double>(sums.removed.mass.size());
  const double transform = Fft(sums.removed.mass.size()).relative_error();
  double squares = 0, weights = 0;
  for (const LossSum* sum : {&sums.removed, &sums.added})
    for (const double mass : sum->mass) squares += mass * mass;
  // Frequencies 0 and the middle one are two real numbers each.
  const double spectrum = 2 * std::sqrt((points + 2) / points) * (2 * transform + 8 * unit);
  const double back = transform * std::sqrt(squares);
  // What a point weighs in delta is at most exp(-tilt * distance); the first has no distance.
  for (int i = 0; i < 10000; ++i) weights += std::exp(-2 * tilt.order * spacing * i);
  const double expected = 5e-14 + 16 * unit + (spectrum + back) * std::sqrt(1 + weights);
  for (const LossSum* sum : {&sums.removed, &sums.added})
    EXPECT_NEAR(sum->error, expected, 1e-6 * expected);
}

// A sum by hand, whose delta is a sum of a few terms.
LossSum sum_by_hand() {
  LossSum sum;
  sum.spacing = 0.25, sum.tilt = 0.5, sum.log_scale = -0.3, sum.first = 3, sum.start = 5;
  sum.mass = {0.125, 0.0625, 0.0625, 0.0625, 0.0625, 0.25, 0.25, 0.125};
  return sum;
}

double delta_by_hand(const LossSum& sum, double epsilon) {
  double delta = 0;
  for (size_t i = 0; i < sum.mass.size(); ++i) {
    const double loss = static_cast<double>(sum.first + static_cast<int64_t>(i)) * sum.spacing;
    if (loss > epsilon)
      delta -= sum.mass[(sum.start + i) % sum.mass.size()] *
               std::exp(sum.log_scale - sum.tilt * loss) * std::expm1(epsilon - loss);
  }
  return delta;
}

TEST(LossSums, AreSolvedForEpsilon) {
  const LossSum sum = sum_by_hand();
  for (const double epsilon : {0.76, 1.0, 1.1, 1.6, 2.2, 2.49}) {
    const double delta = delta_by_hand(sum, epsilon);
    EXPECT_NEAR(sum.epsilon_above(delta, 0), epsilon, 1e-12);
    EXPECT_NEAR(sum.epsilon_about(delta, 0), epsilon, 1e-12);
    EXPECT_NEAR(sum.epsilon_below(delta, 0), epsilon, 1e-12);
    EXPECT_EQ(sum.epsilon_above(delta, epsilon + 0.1), epsilon + 0.1) << "from there on";
  }
  // A delta that is reached nowhere: the window's lower end is the least that was looked at.
  EXPECT_NEAR(sum.epsilon_above(0.99, -5), 0.75, 1e-12);
  EXPECT_NEAR(sum.epsilon_about(0.99, -5), 0.75, 1e-12);
  EXPECT_EQ(sum.epsilon_below(0.99, -5), -5);
}

TEST(LossSums, WithoutANumberForTheirErrorShowNothing) {
  LossSum sum = sum_by_hand();
  sum.error = NAN;
  EXPECT_TRUE(std::isinf(sum.epsilon_above(0.01, 0)));
  EXPECT_EQ(sum.epsilon_below(0.01, 0), 0);
}

}  // namespace
}  // namespace moonshard::accountant
