// What a run may spend and has spent: the noise that a target epsilon asks for, the account of its
// steps, and the reason where no epsilon may be claimed.
#pragma once

#include <string>

#include "runtime/accountant/history.h"
#include "runtime/base/options.h"
#include "runtime/data/source.h"
#include "runtime/privacy/clipping.h"

namespace moonshard::train {

struct PrivacyOptions {
  double target_epsilon = 0;
  double delta = 1e-5;
  double epochs = 0;
  int64_t budget_steps = 0;
  std::string accountant = "rdp";
  bool secure = false;
};

template <class T>
void add_privacy_options(OptionSchema& schema) {
  schema.real<T>("target_epsilon", &T::target_epsilon, 0, 1e6,
                 "budget: noise_multiplier is chosen so that the run's steps stay within it; 0 "
                 "leaves noise_multiplier as it is");
  schema.real<T>("delta", &T::delta, 0, 1, "delta of the claimed epsilon");
  schema.real<T>("epochs", &T::epochs, 0, 1e9,
                 "length of the run in passes over the data; 0 counts in steps");
  schema.integer<T>("budget_steps", &T::budget_steps, 0, 1e12,
                    "steps that the budget must last for; 0 takes the epochs");
  schema.choice<T>("accountant", &T::accountant, {"rdp", "prv", "pld"},
                   "how epsilon is computed: all three are guarantees, prv and pld tighter");
  schema.boolean<T>("secure", &T::secure,
                    "noise and sampling from a secret of the operating system, on a grid that "
                    "resists floating-point attacks; slower, and cannot be repeated");
}

/// Steps of a run of so many passes over the data: rounded up.
int64_t steps_of_epochs(double epochs, const data::Sampling& sampling);

class PrivacyBudget {
 public:
  /// `obstacle` says why the run is not private whatever its data is; empty when it is.
  PrivacyBudget(const PrivacyOptions& options, const data::Sampling& sampling,
                std::string obstacle);

  /// The same options with the noise that the target asks for; plain training has no noise to
  /// choose. Throws UsageError where there is a target but no plan of steps, or no claim can be
  /// made.
  privacy::ClipOptions with_noise(privacy::ClipOptions clip);

  /// Before a step. Throws UsageError when the planned steps are done, or one more would overspend.
  void check_left() const;
  void count_step(double noise_multiplier);
  /// Some step's samples were chosen in a way that nobody accounts for.
  void spoil(const std::string& reason);

  bool has_claim() const { return why_no_epsilon_.empty(); }
  const std::string& why_no_epsilon() const { return why_no_epsilon_; }
  int64_t planned_steps() const { return planned_steps_; }
  const PrivacyOptions& options() const { return options_; }
  const data::Sampling& sampling() const { return sampling_; }
  const accountant::History& history() const { return history_; }
  /// Of all steps so far, by the accountant of the options. Only where there is a claim.
  accountant::Epsilon epsilon() const {
    return history_.epsilon(options_.accountant, options_.delta);
  }
  /// An upper bound of it that is quick, for progress.
  double epsilon_so_far();
  /// Goes on with the account of an earlier run. Other than as many steps in it as were done: no
  /// claim.
  void go_on_from(const accountant::History& history, int64_t private_steps, int64_t noised_steps,
                  int64_t secret_steps);
  /// Steps with noise, and those of them whose noise was a secret's.
  int64_t noised_steps() const { return noised_steps_; }
  int64_t secret_steps() const { return secret_steps_; }

  /// For results: the claim with all that it rests on, or the reason why there is none.
  Json record() const;

 private:
  PrivacyOptions options_;
  data::Sampling sampling_;
  std::string first_reason_, why_no_epsilon_;
  int64_t planned_steps_ = 0, noised_steps_ = 0, secret_steps_ = 0;
  double noise_multiplier_ = 0;
  accountant::History history_;
  double best_order_ = 0;  ///< of the last look
};

}  // namespace moonshard::train
