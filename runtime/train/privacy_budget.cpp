#include "runtime/train/privacy_budget.h"

#include <cmath>

#include "runtime/accountant/calibrate.h"
#include "runtime/accountant/rdp.h"
#include "runtime/base/check.h"

namespace moonshard::train {

namespace {

// All steps so far are of this kind.
bool is_of_one_kind(const accountant::History& history, double q, double sigma) {
  if (history.empty()) return true;
  const accountant::GaussianPhase& first = history.phases().front();
  return history.phases().size() == 1 && first.q == q && first.sigma == sigma;
}

}  // namespace

int64_t steps_of_epochs(double epochs, const data::Sampling& sampling) {
  MS_CHECK(sampling.sampler == "poisson",
           "privacy: option 'epochs': expected data with sampler = poisson, got {}; give "
           "budget_steps, or draw the batches",
           sampling.why_no_epsilon);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(epochs / sampling.rate - 1e-9)));
}

PrivacyBudget::PrivacyBudget(const PrivacyOptions& options, const data::Sampling& sampling,
                             std::string obstacle)
    : options_(options), sampling_(sampling), why_no_epsilon_(std::move(obstacle)) {
  MS_CHECK(options.delta > 0 && options.delta < 1,
           "privacy: option 'delta': expected more than 0 and less than 1, got {}", options.delta);
  MS_CHECK(options.epochs == 0 || options.budget_steps == 0,
           "privacy: expected epochs or budget_steps, got both ({} and {})", options.epochs,
           options.budget_steps);
  if (why_no_epsilon_.empty()) why_no_epsilon_ = sampling.why_no_epsilon;
  first_reason_ = why_no_epsilon_;
  if (options_.budget_steps > 0) planned_steps_ = options_.budget_steps;
  if (planned_steps_ == 0 && options_.epochs > 0)
    planned_steps_ = steps_of_epochs(options_.epochs, sampling_);
}

privacy::ClipOptions PrivacyBudget::with_noise(privacy::ClipOptions clip) {
  if (clip.noise_multiplier == 0 && options_.target_epsilon == 0 && has_claim())
    first_reason_ = why_no_epsilon_ = "noise_multiplier = 0: nothing is hidden";
  noise_multiplier_ = clip.noise_multiplier;
  if (options_.target_epsilon == 0 || clip.mode == "none") return clip;
  MS_CHECK(has_claim(),
           "privacy: option 'target_epsilon': expected a run that can claim one, got {}",
           why_no_epsilon_);
  MS_CHECK(planned_steps_ > 0,
           "privacy: option 'target_epsilon': expected epochs or budget_steps beside it: a budget "
           "is for a number of steps");
  clip.noise_multiplier = accountant::calibrate_sigma(options_.accountant, sampling_.rate,
                                                      static_cast<double>(planned_steps_),
                                                      options_.delta, options_.target_epsilon);
  noise_multiplier_ = clip.noise_multiplier;
  return clip;
}

void PrivacyBudget::check_left() const {
  if (planned_steps_ == 0 || !has_claim()) return;
  bool fits = history_.num_steps() < static_cast<double>(planned_steps_);
  // A run that went on from steps of another kind is not what was planned: look at the whole.
  const bool as_planned = is_of_one_kind(history_, sampling_.rate, noise_multiplier_);
  if (fits && !as_planned && options_.target_epsilon > 0) {
    accountant::History next = history_;
    next.add({sampling_.rate, noise_multiplier_, 1});
    fits = next.epsilon(options_.accountant, options_.delta).epsilon <= options_.target_epsilon;
  }
  if (fits) return;
  const std::string budget =
      options_.target_epsilon > 0
          ? fmt::format("budget of epsilon {} at delta {}", options_.target_epsilon, options_.delta)
          : std::string("plan");
  throw UsageError(
      fmt::format("trainer: expected steps within the {} (planned: {}), got one more after {} "
                  "steps; plan with more epochs from the start, or stop here",
                  budget, planned_steps_, history_.num_steps()));
}

void PrivacyBudget::count_step(double noise_multiplier) {
  if (noise_multiplier > 0) {
    ++noised_steps_;
    if (options_.secure) ++secret_steps_;
  }
  if (has_claim()) history_.add({sampling_.rate, noise_multiplier, 1});
}

void PrivacyBudget::spoil(const std::string& reason) {
  if (has_claim()) why_no_epsilon_ = reason;
}

// Every order gives a bound; from step to step the best moves by little.
double PrivacyBudget::epsilon_so_far() {
  std::vector<double> orders = accountant::default_orders();
  if (best_order_ > 0) {
    std::erase_if(orders, [&](double order) {
      return order < 0.8 * best_order_ || order > 1.25 * best_order_;
    });
  }
  const accountant::RdpEpsilon found =
      accountant::rdp_epsilon(history_.phases(), options_.delta, orders);
  best_order_ = found.best_order;
  // The noise was chosen so that all planned steps stay within the target.
  const bool as_planned =
      options_.target_epsilon > 0 && is_of_one_kind(history_, sampling_.rate, noise_multiplier_);
  return as_planned ? std::min(found.epsilon, options_.target_epsilon) : found.epsilon;
}

void PrivacyBudget::go_on_from(const accountant::History& history, int64_t private_steps,
                               int64_t noised_steps, int64_t secret_steps) {
  history_ = history;
  noised_steps_ = noised_steps;
  secret_steps_ = secret_steps;
  best_order_ = 0;
  why_no_epsilon_ = first_reason_;  // the weights are the checkpoint's, whatever came before
  if (history.num_steps() != static_cast<double>(private_steps))
    spoil(fmt::format("of the {} private steps of the resumed run {} are accounted for",
                      private_steps, history.num_steps()));
}

Json PrivacyBudget::record() const {
  Json row{{"epsilon", nullptr}, {"sampler", sampling_.sampler}};
  const accountant::Epsilon spent = has_claim() ? epsilon() : accountant::Epsilon{};
  if (!has_claim()) {
    row["why_no_epsilon"] = why_no_epsilon_;
  } else if (!std::isfinite(spent.epsilon)) {
    row["why_no_epsilon"] = "the noise is too little for any finite epsilon";
  } else {
    row["epsilon"] = spent.epsilon;
    row["delta"] = options_.delta;
    row["accountant"] = options_.accountant;
    if (std::isfinite(spent.best_order)) row["best_order"] = spent.best_order;
    if (std::isfinite(spent.lower)) row["epsilon_lower"] = spent.lower;
    row["sampling_rate"] = sampling_.rate;
    row["examples"] = sampling_.examples;
    row["expected_batch_size"] = sampling_.expected_batch_size;
    row["history"] = history_.to_json();
    if (options_.target_epsilon > 0) row["target_epsilon"] = options_.target_epsilon;
    row["note"] =
        "of the weights; losses, norms and shares of clipped samples in this file are "
        "exact figures of the data and not covered";
  }
  if (has_claim() && options_.delta * static_cast<double>(sampling_.examples) >= 1)
    row["warning"] =
        fmt::format("delta is not below 1 / {}: giving away whole examples may have such a delta",
                    sampling_.examples);
  row["noise"] = noised_steps_ == 0               ? "none"
                 : secret_steps_ == 0             ? "counter"
                 : secret_steps_ == noised_steps_ ? "secure"
                                                  : "mixed";
  return row;
}

}  // namespace moonshard::train
