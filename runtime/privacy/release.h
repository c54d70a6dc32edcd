// Figures of private data that are shown to others: sums over samples with Gaussian noise of their
// own, which the account is charged for.
//
// Note on what is released. Each sample adds to the sums a vector of norm at most `sensitivity`,
// and one sample more or less changes nothing else: the weights are fixed. So sums plus noise of
// noise_multiplier x sensitivity are a Gaussian mechanism that sees every sample, and what is
// computed of them costs nothing more. The number of samples is taken as known, as the sampling
// rate of training steps does. Held-out samples are charged to the same account as those that are
// trained on: more than the truth where nobody is in both, and never less.
#pragma once

#include "runtime/analysis/evaluation.h"
#include "runtime/comm/world.h"
#include "runtime/privacy/account.h"

namespace moonshard::privacy {

struct ReleaseOptions {
  double noise_multiplier = 0;
  double loss_bound = 0;  ///< larger losses count as this much
};

/// What is known of an evaluation after the noise; figures of single samples are not.
struct ReleasedEvaluation {
  analysis::EvaluationFigures figures;  ///< loss: mean over samples, each at most loss_bound
  double sensitivity = 0;
  double loss_noise = 0;      ///< standard deviation of the noise in the loss
  double accuracy_noise = 0;  ///< the same of the accuracy
};

/// Of a classifier the confusion matrix and the loss, else the loss alone. All ranks together, with
/// the same samples and words: `secret` null draws from `seed` and `count`, which is not private.
ReleasedEvaluation noised(const analysis::EvaluatedSamples& samples, const ReleaseOptions& options,
                          const kernels::ChaChaKey* secret, uint64_t seed, int64_t count);

}  // namespace moonshard::privacy
