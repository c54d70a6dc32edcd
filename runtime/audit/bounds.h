// Lower bounds on epsilon from an adversary's guesses about canaries. Needs no LibTorch.
//   Steinke, Nasr, Jagielski: Privacy Auditing with One (1) Training Run (2023): one_run_*
//   Nasr et al.: Tight Auditing of Differentially Private Machine Learning (2023): Gaussian DP
//   Clopper, Pearson (1934): limits of a binomial share
//
// Note: many thresholds, one confidence. A bound that took its best of all thresholds would be
// right less often than it says. Here the thresholds are fixed before any score is seen, scores
// being scaled so that a canary that was left out lies about 0 and one that took part about 1, and
// the significance is divided among the thresholds and the limits taken at each (a union bound). No
// data is spent on choosing, and the confidence is at least 1 - significance whatever the scores
// are.
#pragma once

#include <cstdint>
#include <vector>

namespace moonshard::audit {

/// Scores of canaries, one each: higher means "took part".
struct Scores {
  std::vector<double> in, out;
  int64_t size() const { return static_cast<int64_t>(in.size() + out.size()); }
};

/// Upper limit of the failure rate given `failed` of `trials`: the truth is at or below it with
/// confidence 1 - significance (one-sided Clopper-Pearson).
double binomial_upper_limit(int64_t failed, int64_t trials, double significance);

/// Probability bound for an (epsilon, delta)-private run to allow at least `correct` right guesses
/// of `guesses` about `canaries` that were included by fair coins; at most 1.
double one_run_p_value(int64_t canaries, int64_t guesses, int64_t correct, double epsilon,
                       double delta);
/// The largest epsilon that the guesses refute at this significance; 0 when they refute none.
double one_run_epsilon(int64_t canaries, int64_t guesses, int64_t correct, double significance,
                       double delta);

// ---- from scores to bounds, at confidence 1 - significance -------------------------------------

/// Guesses the highest tenth in and the lowest tenth out, and abstains between. Valid however the
/// scores depend on each other.
double one_run_bound(const Scores& scores, double significance, double delta);
/// The mu that no test at the thresholds refutes, as an epsilon. Tight for Gaussian noise. Expects
/// independent scores, and a mechanism whose privacy curve is Gaussian.
double gaussian_dp_bound(const Scores& scores, double significance, double delta);
/// log of (true share - delta) / (false share), by limits of both. Expects independent scores; no
/// shape of the mechanism is assumed, and it needs far more canaries than the others.
double clopper_pearson_bound(const Scores& scores, double significance, double delta);

}  // namespace moonshard::audit
