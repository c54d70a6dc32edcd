#include "runtime/accountant/privacy_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/accountant/gaussian.h"
#include "runtime/accountant/loss_sum.h"
#include "runtime/accountant/rdp.h"

namespace moonshard::accountant {
namespace {

// Limits of the grid: about two seconds of work.
constexpr double kMostPoints = 1 << 23, kMostCells = 1 << 21;
// Beyond these the grid lacks precision, or is unbounded; only Renyi's bound is used.
constexpr double kMostEpsilon = 1000, kMostStepsSummed = 1e8, kLeastSigma = 0.02;
constexpr size_t kMostKinds = 256;

// Phases that see every sample combine to one Gaussian.
std::vector<GaussianPhase> distinct(const std::vector<GaussianPhase>& phases) {
  std::vector<GaussianPhase> list;
  double precision = 0;
  for (const GaussianPhase& phase : merged(phases)) {
    if (phase.q < 1) {
      list.push_back(phase);
    } else {
      precision += phase.sigma == 0 ? kInfinity : phase.steps / (phase.sigma * phase.sigma);
    }
  }
  if (precision > 0) list.push_back({1, 1 / std::sqrt(precision), 1});
  return list;
}

bool fits_grid(const std::vector<GaussianPhase>& phases, double renyi) {
  if (!(renyi <= kMostEpsilon) || phases.size() > kMostKinds) return false;
  double steps = 0;
  for (const GaussianPhase& phase : phases) {
    if (phase.sigma < kLeastSigma) return false;
    steps += phase.steps;
  }
  return steps <= kMostStepsSummed;
}

struct Setting {
  std::vector<LossPair> steps;
  double num_steps = 0;
  Tilt removed, added;

  // The least spacing at which sums and steps have at most that many points.
  double spacing_for(double points, double cells) const {
    const double width = std::max(removed.high - removed.low, added.high - added.low);
    double span = 0;
    for (const LossPair& step : steps) {
      span += std::max(step.removed.highest() - step.removed.lowest(),
                       step.added.highest() - step.added.lowest());
    }
    return std::max(width / (points - 16), span / cells);
  }
  // A spacing at which rounding hardly moves the tilted sum: log moments grow by at most the
  // number of steps times (order * spacing)^2 / 8.
  double fair_spacing() const {
    return 0.5 / (std::max(removed.order, added.order) * std::sqrt(num_steps));
  }
  // Orders that a grid cannot distinguish would only magnify its rounding.
  void limit_orders(double spacing) {
    const double most = 2 / spacing;
    for (const Neighbour neighbour : {Neighbour::Removed, Neighbour::Added}) {
      Tilt& tilt = neighbour == Neighbour::Removed ? removed : added;
      if (std::max({tilt.order, tilt.low_order, tilt.high_order}) > most) {
        tilt = tilt_for_epsilon(steps, neighbour, tilt.epsilon, most);
      }
    }
  }
  double least_spacing() const { return spacing_for(kMostPoints, kMostCells); }
};

// `outside`: probability, over all steps, of a loss that is counted as infinite.
Setting make_setting(const std::vector<GaussianPhase>& phases, double delta, double outside) {
  Setting setting;
  for (const GaussianPhase& phase : phases) setting.num_steps += phase.steps;
  const double each = outside / setting.num_steps;
  for (const GaussianPhase& phase : phases) {
    setting.steps.push_back({StepLoss(Neighbour::Removed, phase.q, phase.sigma, each),
                             StepLoss(Neighbour::Added, phase.q, phase.sigma, each), phase.steps});
  }
  setting.removed = tilt_for_delta(setting.steps, Neighbour::Removed, delta);
  setting.added = tilt_for_delta(setting.steps, Neighbour::Added, delta);
  // A coarse sum locates epsilon, which gives the right tilt.
  const double spacing =
      std::max(setting.spacing_for(1 << 20, 1 << 19),
               std::min(setting.fair_spacing(), setting.spacing_for(1 << 12, 1 << 13)));
  const double removed_order = 2 * setting.removed.order, added_order = 2 * setting.added.order;
  setting.limit_orders(spacing);
  const LossSums coarse =
      sum_losses(setting.steps, setting.removed, setting.added, spacing, Rounding::KeepMean);
  const double removed = coarse.removed.epsilon_about(delta, -coarse.removed_drift);
  const double added = coarse.added.epsilon_about(delta, -coarse.added_drift);
  setting.removed = tilt_for_epsilon(setting.steps, Neighbour::Removed,
                                     std::max(0.0, removed + coarse.removed_drift), removed_order);
  setting.added = tilt_for_epsilon(setting.steps, Neighbour::Added,
                                   std::max(0.0, added + coarse.added_drift), added_order);
  return setting;
}

// Cases that need no sum; true when the bracket is final.
bool is_settled(const std::vector<GaussianPhase>& phases, double renyi, Bracket& bracket) {
  bracket.upper = renyi;
  if (phases.empty() || renyi == 0) return true;
  for (const GaussianPhase& phase : phases) {
    if (phase.sigma == 0) {
      bracket.lower = kInfinity;
      return true;
    }
  }
  if (fits_grid(phases, renyi)) return false;
  bracket.note = "Renyi's bound: beyond the range of the grid";
  return true;
}

}  // namespace

Bracket prv_bracket(const std::vector<GaussianPhase>& given, double delta) {
  check_phases("accountant.prv", given, delta);
  const std::vector<GaussianPhase> phases = distinct(given);
  const double renyi = rdp_epsilon(phases, delta).epsilon;
  Bracket bracket;
  if (is_settled(phases, renyi, bracket)) return bracket;

  const double delta_error = delta / 1000;
  Setting setting = make_setting(phases, delta, delta_error / 100);
  const double reach = std::sqrt(setting.num_steps / 2 * std::log(12 / delta_error));
  double error = 0.01;
  const double spacing = std::max(error / reach, setting.least_spacing());
  error = std::max(error, spacing * reach);
  setting.limit_orders(spacing);
  const LossSums sums =
      sum_losses(setting.steps, setting.removed, setting.added, spacing, Rounding::KeepMean);
  for (const bool removed : {true, false}) {
    const LossSum& sum = removed ? sums.removed : sums.added;
    const double drift = removed ? sums.removed_drift : sums.added_drift;
    const double above = sum.epsilon_above(delta - delta_error, -drift) + drift + error;
    const double below = sum.epsilon_below(delta + delta_error, -drift) + drift - error;
    bracket.upper = removed ? above : std::max(bracket.upper, above);
    bracket.lower = std::max(bracket.lower, below);
  }
  bracket.upper = std::min(bracket.upper, renyi);
  bracket.lower = std::clamp(bracket.lower, 0.0, bracket.upper);
  return bracket;
}

Bracket pld_bracket(const std::vector<GaussianPhase>& given, double delta) {
  check_phases("accountant.pld", given, delta);
  const std::vector<GaussianPhase> phases = distinct(given);
  const double renyi = rdp_epsilon(phases, delta).epsilon;
  Bracket bracket;
  if (is_settled(phases, renyi, bracket)) return bracket;

  constexpr double kWanted = 5e-5;  // of epsilon, lost to the grid
  const double outside = 1e-6 * delta;
  Setting setting = make_setting(phases, delta, outside);
  // To second order a step's log moment at the tilt grows by tilt (tilt + 1) spacing^2 / 12.
  const Tilt& tilt = setting.removed;
  const double wanted = std::sqrt(12 * kWanted * std::clamp(tilt.epsilon, 1e-12, renyi) /
                                  (setting.num_steps * (tilt.order + 1)));
  const double spacing = std::max(wanted, setting.least_spacing());
  setting.limit_orders(spacing);
  const LossSums sums =
      sum_losses(setting.steps, setting.removed, setting.added, spacing, Rounding::Upwards);
  // What rounding adds to a step's loss spans one spacing and has exp(-added) = 1 on average: its
  // mean is at most spacing^2 / 8 (Hoeffding's lemma), its sum seldom above `error`.
  const double chance = delta / 1000;
  const double error = setting.num_steps * spacing * spacing / 8 +
                       spacing * std::sqrt(setting.num_steps / 2 * -std::log(chance));
  for (const LossSum* sum : {&sums.removed, &sums.added}) {
    bracket.lower = std::max(bracket.lower, sum->epsilon_below(delta + chance, 0) - error);
    const double above = sum->epsilon_above(delta - outside, 0);
    bracket.upper = sum == &sums.removed ? above : std::max(bracket.upper, above);
  }
  bracket.upper = std::min(bracket.upper, renyi);
  bracket.lower = std::clamp(bracket.lower, 0.0, bracket.upper);
  return bracket;
}

}  // namespace moonshard::accountant
