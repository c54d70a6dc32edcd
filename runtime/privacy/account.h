// The privacy account of a training run: the noise that a target epsilon requires, what its steps
// have spent, the secret that its noise is drawn from, and the reason where no epsilon may be
// claimed.
#pragma once

#include <memory>
#include <string>

#include "runtime/accountant/epsilon.h"
#include "runtime/comm/world.h"
#include "runtime/core/random_words.h"
#include "runtime/data/source.h"
#include "runtime/models/model.h"
#include "runtime/privacy/clip_options.h"
#include "runtime/records/schema.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::privacy {

// A secret that all ranks of a run share and that is never stored.

/// Drawn from the operating system's generators of all ranks; all ranks together. Each call gives
/// another.
std::shared_ptr<const kernels::ChaChaKey> shared_secret(comm::World& world);

/// What a run's model draws for its samples from: its seed, or a separate secret. All ranks
/// together.
RandomWords model_words(comm::World& world, int64_t seed, bool secure);
/// What the samples themselves are drawn from. A secret only for Poisson sampling of a private run:
/// nothing else gives a claim, and a resumed run then goes on where it was.
RandomWords sampling_words(comm::World& world, int64_t seed, bool secure, const std::string& mode,
                           const std::string& sampler);

/// Steps of a run of so many passes over the data: rounded up.
int64_t steps_of_epochs(double epochs, const data::Sampling& sampling);

/// Why a run with these options is not private, whatever its data; empty when it is.
std::string privacy_obstacle(const ClipOptions& clip, const sharding::ShardingOptions& sharding,
                             const comm::World& world);

/// What a checkpoint keeps of an account.
struct SpentSteps {
  accountant::History history;  ///< steps that an epsilon can be claimed for
  int64_t private_steps = 0;    ///< all steps of a private engine
  int64_t noised_steps = 0;     ///< those with noise
  int64_t secret_steps = 0;     ///< those whose noise came from a secret
  std::string why_no_epsilon;   ///< empty where the run that was saved had a claim
};

class Account {
 public:
  /// `obstacle` says why the run is not private whatever its data is; empty when it is. `trainer`
  /// is the trainer's id, by which the model tells whose steps these are.
  Account(const PrivacyOptions& options, const data::Sampling& sampling, std::string obstacle,
          std::shared_ptr<models::LastTrainer> last_trainer, int64_t trainer);

  /// The same options with the noise that the target requires; plain training has no noise to
  /// choose. Throws UsageError where there is a target but no plan of steps, or no claim can be
  /// made.
  ClipOptions with_noise(ClipOptions clip);
  /// With option secure: a new secret that noise is drawn from. All ranks together.
  void draw_secret(comm::World& world);
  /// Differs where secrets differ, and tells nothing else of them; empty without one.
  std::string secret_name() const;
  /// Null without it.
  const std::shared_ptr<const kernels::ChaChaKey>& secret() const { return secret_; }

  /// Before a step. Throws UsageError when the planned steps are done, or one more would overspend.
  void check_left() const;
  /// Before a step changes anything: from now on the weights are this trainer's. An account is of
  /// one trainer's steps, and two trainers of one model and seed would draw the same noise.
  void take_model();
  void count_step(double noise_multiplier);
  /// Steps with secret noise that another process did, and releases.
  void charge(const accountant::History& steps);
  /// Before figures of the data are released with Gaussian noise of their own: noise_multiplier
  /// times their sensitivity. A release sees every sample: it is charged as a step with a sampling
  /// rate of 1. Throws UsageError when the target has no room for it and all planned steps.
  void check_release(double noise_multiplier) const;
  /// No epsilon from here on, for this reason; the first reason stays.
  void invalidate_claim(const std::string& reason);

  bool has_claim() const { return why_no_epsilon().empty(); }
  /// Empty when there is a claim. Another trainer may have updated the model since the last step.
  std::string why_no_epsilon() const;
  int64_t planned_steps() const { return planned_steps_; }
  /// Standard deviation of a step's noise along any one direction, as a share of the largest norm
  /// that the mean gradient can have.
  double noise_to_signal() const;
  int64_t private_steps() const { return spent_.private_steps; }
  const data::Sampling& sampling() const { return sampling_; }
  const accountant::History& history() const { return spent_.history; }
  /// Of all steps so far, by the accountant of the options. Only where there is a claim.
  accountant::Epsilon epsilon() const {
    return spent_.history.epsilon(options_.accountant, options_.delta);
  }
  /// A cheap upper bound of it, for progress.
  double epsilon_so_far();

  /// With the reason why there is no claim, if there is none.
  SpentSteps spent() const;
  /// The weights are a checkpoint's now: continues its account. Steps of this trainer that the
  /// checkpoint does not have stay charged: their weights may have been seen, and they are done
  /// again with other noise. There is no claim where the run that was saved had none, or where some
  /// of its steps are not accounted for.
  void go_on_from(const SpentSteps& spent);

  /// For results: the claim with all its parameters, or the reason why there is none.
  records::PrivacyPart record() const;

 private:
  /// What was spent, by kinds.
  struct Counts {
    double steps = 0, releases = 0;
    bool as_planned = true;  ///< all of the noise and sampling rate that the plan is for
  };
  Counts counts() const;
  /// The noise was chosen so that all of this, and so much more, stays within the target.
  bool is_within_plan(double more_steps, double more_releases) const;

  PrivacyOptions options_;
  data::Sampling sampling_;
  std::shared_ptr<models::LastTrainer> last_trainer_;
  int64_t trainer_;
  std::string first_reason_, reason_;  ///< why there is no claim: at the start, and now
  int64_t planned_steps_ = 0;
  double noise_multiplier_ = 0;
  SpentSteps spent_;
  std::shared_ptr<const kernels::ChaChaKey> secret_;
  double best_order_ = 0;  ///< of the last look
};

}  // namespace moonshard::privacy
