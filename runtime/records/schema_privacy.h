// A record's parts about privacy (schema.h).
#pragma once

#include "runtime/records/schema_fields.h"

namespace moonshard::records {

/// Steps with one sampling rate and one noise multiplier.
struct PrivacyPhase {
  double q = NAN, sigma = NAN, steps = NAN;
};
template <class V>
void fields(V& v, PrivacyPhase& p) {
  v({"q", Unit::Fraction, "Sampling rate of these steps."}, p.q);
  v({"sigma", Unit::None, "Noise multiplier of these steps."}, p.sigma);
  v({"steps", Unit::Count, "How many steps."}, p.steps);
}

struct NormHistogram {
  std::vector<double> edges, counts;
  double left_out = NAN, max_grad_norm = NAN;
};
template <class V>
void fields(V& v, NormHistogram& h) {
  v({"edges", Unit::None, "Borders of the bins, one more than counts."}, h.edges);
  v({"counts", Unit::Count, "Samples in each bin."}, h.counts);
  v({"left_out", Unit::Count, "Samples whose norm is 0 or not finite."}, h.left_out);
  v({"max_grad_norm", Unit::None, "The clipping bound of that step."}, h.max_grad_norm);
}

/// What the result claims about privacy, and what the claim rests on.
struct PrivacyPart {
  double epsilon = NAN;
  std::string sampler, why_no_epsilon;
  double delta = NAN;
  std::string accountant;
  double best_order = NAN, epsilon_lower = NAN, sampling_rate = NAN, examples = NAN,
         expected_batch_size = NAN;
  std::vector<PrivacyPhase> history;
  double target_epsilon = NAN;
  std::string note, warning, noise;
  bool private_engine = false;
  double noise_multiplier = NAN, max_grad_norm = NAN, steps = NAN;
  NormHistogram norms_histogram;
};
template <class V>
void fields(V& v, PrivacyPart& p) {
  v({"epsilon", Unit::None,
     "The privacy loss that the result claims: the smaller, the more private. A claim, not a "
     "proof.",
     Missing::Null},
    p.epsilon);
  v({"sampler", Unit::None, "How batches are drawn; only Poisson subsampling leads to an epsilon."},
    p.sampler);
  v({"why_no_epsilon", Unit::None, "Why the result claims no epsilon."}, p.why_no_epsilon);
  v({"delta", Unit::None, "Probability that the bound epsilon does not cover."}, p.delta);
  v({"accountant", Unit::None, "Which computation turned noise, rate and steps into epsilon."},
    p.accountant);
  v({"best_order", Unit::None, "Renyi order at which epsilon was found (accountant rdp)."},
    p.best_order);
  v({"epsilon_lower", Unit::None, "No accountant can claim less (accountant prv)."},
    p.epsilon_lower);
  v({"sampling_rate", Unit::Fraction, "Probability of each sample to be in a step's batch."},
    p.sampling_rate);
  v({"examples", Unit::Count, "Size of the data set that is sampled from."}, p.examples);
  v({"expected_batch_size", Unit::Count, "Samples of a step on average: sampling_rate x examples."},
    p.expected_batch_size);
  v({"history", Unit::None, "Phases of the run, each with its own sampling rate and noise."},
    p.history);
  v({"target_epsilon", Unit::None, "The budget that the noise was chosen for."}, p.target_epsilon);
  v({"note", Unit::None, "What the claim does not cover."}, p.note);
  v({"warning", Unit::None, "What is doubtful about the claim's parameters."}, p.warning);
  v({"noise", Unit::None,
     "Source of the noise: secure (a secret key), counter (reproducible from the seed: not "
     "private), mixed, none."},
    p.noise);
  v({"private_engine", Unit::None,
     "The engine clips and adds noise, and nothing in the setup undoes that."},
    p.private_engine);
  v({"noise_multiplier", Unit::None, "Standard deviation of the noise over the clipping bound."},
    p.noise_multiplier);
  v({"max_grad_norm", Unit::None, "The clipping bound C."}, p.max_grad_norm);
  v({"steps", Unit::Count, "Noised updates so far, warm-up and watched steps included."}, p.steps);
  v({"norms_histogram", Unit::None,
     "Gradient norms of the watched step's samples; only where nothing is claimed."},
    p.norms_histogram);
}

/// Squared norms around their sum over ranks (norm_reduce = sum), in the watched step.
struct NormSum {
  double rank = NAN;
  std::vector<double> before, after;
};
template <class V>
void fields(V& v, NormSum& n) {
  v({"rank", Unit::Count, "Whose they are."}, n.rank);
  v({"before", Unit::None, "Squared norms of this rank's own samples."}, n.before);
  v({"after", Unit::None, "The same after the sum over ranks: equal on all of them."}, n.after);
}

}  // namespace moonshard::records
