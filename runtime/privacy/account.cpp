#include "runtime/privacy/account.h"

#include <cmath>

#include <ATen/ATen.h>

#include "runtime/accountant/calibrate.h"
#include "runtime/accountant/rdp.h"
#include "runtime/base/check.h"
#include "runtime/sharding/unit_policy.h"

namespace moonshard::privacy {
namespace {

constexpr const char* kReproducibleNoise =
    "reproducible noise: not private (secure = false: who has the seed can take the noise away)";
constexpr const char* kSharedModel =
    "another trainer has updated the same model: an account is of one trainer's steps (of weights "
    "that were trained on public data: save them, and make a new model of them)";

}  // namespace

std::shared_ptr<const kernels::ChaChaKey> shared_secret(comm::World& world) {
  const auto key = std::make_shared<kernels::ChaChaKey>(draw_secret_key());
  if (world.size() == 1 || world.is_fake()) return key;
  const auto group = world.group("statistics", c10::kCPU);
  at::Tensor own = at::empty({8}, at::kLong);
  for (int64_t i = 0; i < 8; ++i) own.data_ptr<int64_t>()[i] = static_cast<int64_t>(key->word[i]);
  const at::Tensor all = at::empty({8 * world.size()}, at::kLong);
  group->all_gather(all, own, "a secret").wait();
  // Keys of all ranks are XORed: one weak generator is harmless.
  for (int64_t i = 0; i < 8; ++i) key->word[i] = 0;
  for (int64_t i = 0; i < all.numel(); ++i)
    key->word[i % 8] ^= static_cast<uint32_t>(all.data_ptr<int64_t>()[i]);
  return key;
}

RandomWords model_words(comm::World& world, int64_t seed, bool secure) {
  return secure ? RandomWords(*shared_secret(world)) : RandomWords(static_cast<uint64_t>(seed));
}

RandomWords sampling_words(comm::World& world, int64_t seed, bool secure, const std::string& mode,
                           const std::string& sampler) {
  return model_words(world, seed, secure && mode != "none" && sampler == "poisson");
}

std::string privacy_obstacle(const ClipOptions& clip, const sharding::ShardingOptions& sharding,
                             const comm::World& world) {
  const std::string mode = canonical_engine(clip.mode);
  for (const EngineDescription& engine : engine_descriptions()) {
    if (engine.name != mode) continue;
    if (!engine.is_private) return fmt::format("mode = {}: plain training", clip.mode);
    if (!engine.built_in)
      return fmt::format("mode = {}: an engine of a script, whose norms nobody has proven here",
                         clip.mode);
  }
  if (sharding::reduces_some_in(sharding, "bfloat16") && world.size() > 1)
    return "reduce_dtype = bfloat16 rounds the ranks' sums before the noise is added: one sample "
           "can "
           "move them by more than its bound";
  if (sharding.norm_reduce == "sum")
    return "norm_reduce = sum mixes samples of different ranks: for timing, not private";
  if (world.is_fake()) return "world = fake: the other ranks are only modelled, nothing is trained";
  return "";
}

int64_t steps_of_epochs(double epochs, const data::Sampling& sampling) {
  MS_CHECK(sampling.sampler == "poisson",
           "privacy: option 'epochs': expected data with sampler = poisson, got {}; give "
           "budget_steps, or draw the batches",
           sampling.why_no_epsilon);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(epochs / sampling.rate - 1e-9)));
}

Account::Account(const PrivacyOptions& options, const data::Sampling& sampling,
                 std::string obstacle, std::shared_ptr<models::LastTrainer> last_trainer,
                 int64_t trainer)
    : options_(options),
      sampling_(sampling),
      last_trainer_(std::move(last_trainer)),
      trainer_(trainer),
      reason_(std::move(obstacle)) {
  MS_CHECK(options.delta > 0 && options.delta < 1,
           "privacy: option 'delta': expected more than 0 and less than 1, got {}", options.delta);
  MS_CHECK(options.epochs == 0 || options.budget_steps == 0,
           "privacy: expected epochs or budget_steps, got both ({} and {})", options.epochs,
           options.budget_steps);
  if (reason_.empty() && !options.secure) reason_ = kReproducibleNoise;
  if (reason_.empty()) reason_ = sampling.why_no_epsilon;
  first_reason_ = reason_;
  MS_CHECK((options.releases > 0) == (options.release_noise > 0),
           "privacy: expected releases and release_noise, both or neither, got {} and {}",
           options.releases, options.release_noise);
  if (options_.budget_steps > 0) planned_steps_ = options_.budget_steps;
  if (planned_steps_ == 0 && options_.epochs > 0)
    planned_steps_ = steps_of_epochs(options_.epochs, sampling_);
}

ClipOptions Account::with_noise(ClipOptions clip) {
  if (clip.noise_multiplier == 0 && options_.target_epsilon == 0 && reason_.empty())
    first_reason_ = reason_ = "noise_multiplier = 0: nothing is hidden";
  noise_multiplier_ = clip.noise_multiplier;
  if (options_.target_epsilon == 0 || clip.mode == "none") return clip;
  MS_CHECK(reason_.empty(),
           "privacy: option 'target_epsilon': expected a run that can claim one, got {}", reason_);
  MS_CHECK(planned_steps_ > 0,
           "privacy: option 'target_epsilon': expected epochs or budget_steps beside it: a budget "
           "is for a number of steps");
  accountant::CalibrateOptions calibrate;
  if (options_.releases > 0)
    calibrate.beside = {{1, options_.release_noise, static_cast<double>(options_.releases)}};
  clip.noise_multiplier = accountant::calibrate_sigma(
      options_.accountant, sampling_.rate, static_cast<double>(planned_steps_), options_.delta,
      options_.target_epsilon, calibrate);
  noise_multiplier_ = clip.noise_multiplier;
  const double ratio = noise_to_signal();
  if (ratio > 1)
    fmt::print(
        stderr,
        "moonshard: privacy: epsilon {} needs a noise_multiplier of {:.4g}: along any direction "
        "the noise of a step is {:.3g} times the largest mean gradient and will drown it; "
        "take larger batches, fewer steps or a larger epsilon\n",
        options_.target_epsilon, clip.noise_multiplier, ratio);
  return clip;
}

double Account::noise_to_signal() const {
  return noise_multiplier_ /
         static_cast<double>(std::max<int64_t>(1, sampling_.expected_batch_size));
}

void Account::draw_secret(comm::World& world) {
  if (options_.secure) secret_ = shared_secret(world);
}

std::string Account::secret_name() const {
  if (secret_ == nullptr) return "";
  const uint32_t unused = ~uint32_t{0};  // no noise is drawn from this block
  const kernels::ChaChaWords words = kernels::chacha20(*secret_, ~uint64_t{0}, unused, unused);
  return fmt::format("{:08x}{:08x}", words.word[0], words.word[1]);
}

void Account::take_model() {
  const int64_t before = last_trainer_->exchange(trainer_);
  if (before != 0 && before != trainer_) invalidate_claim(kSharedModel);
}

std::string Account::why_no_epsilon() const {
  if (!reason_.empty()) return reason_;
  const int64_t last = last_trainer_->id();
  return last != 0 && last != trainer_ ? kSharedModel : "";
}

// A release is told from a step by its sampling rate of 1. Where steps see all samples, too, it
// counts as one of them: the plan then ends early, never late.
Account::Counts Account::counts() const {
  Counts counts;
  for (const accountant::GaussianPhase& phase : spent_.history.phases()) {
    const bool is_release = phase.q == 1 && sampling_.rate < 1;
    (is_release ? counts.releases : counts.steps) += phase.steps;
    counts.as_planned = counts.as_planned && (is_release ? phase.sigma == options_.release_noise
                                                         : phase.q == sampling_.rate &&
                                                               phase.sigma == noise_multiplier_);
  }
  return counts;
}

bool Account::is_within_plan(double more_steps, double more_releases) const {
  const Counts spent = counts();
  return spent.as_planned && spent.steps + more_steps <= static_cast<double>(planned_steps_) &&
         spent.releases + more_releases <= static_cast<double>(options_.releases);
}

void Account::check_release(double noise_multiplier) const {
  MS_CHECK(std::isfinite(noise_multiplier) && noise_multiplier > 0,
           "evaluate: option 'noise_multiplier': expected a number above 0, got {}",
           noise_multiplier);
  if (options_.target_epsilon == 0 || !reason_.empty()) return;
  if (noise_multiplier == options_.release_noise && is_within_plan(0, 1)) return;
  accountant::History all = spent_.history;
  all.add({1, noise_multiplier, 1});
  const double left = static_cast<double>(planned_steps_) - counts().steps;
  if (left > 0) all.add({sampling_.rate, noise_multiplier_, left});
  const double epsilon = all.epsilon(options_.accountant, options_.delta).epsilon;
  MS_CHECK(epsilon <= options_.target_epsilon,
           "evaluate: expected a release within the budget of epsilon {} at delta {}, got one that "
           "leads to {:.4g} with the {} steps that are planned; plan for it (privacy = {{ releases "
           "= …, release_noise = … }}), or take more noise",
           options_.target_epsilon, options_.delta, epsilon, left);
}

void Account::check_left() const {
  if (planned_steps_ == 0 || !reason_.empty()) return;
  bool fits = counts().steps < static_cast<double>(planned_steps_);
  // A run that went on from steps of another kind is not what was planned: look at the whole.
  if (fits && options_.target_epsilon > 0 && !is_within_plan(1, 0)) {
    accountant::History next = spent_.history;
    next.add({sampling_.rate, noise_multiplier_, 1});
    // Renyi's bound is quick; only near the end the options' own, which may take a second.
    fits = next.epsilon("rdp", options_.delta).epsilon <= options_.target_epsilon ||
           next.epsilon(options_.accountant, options_.delta).epsilon <= options_.target_epsilon;
  }
  if (fits) return;
  const std::string budget =
      options_.target_epsilon > 0
          ? fmt::format("budget of epsilon {} at delta {}", options_.target_epsilon, options_.delta)
          : std::string("plan");
  throw UsageError(
      fmt::format("trainer: expected steps within the {} (planned: {}), got one more after {} "
                  "steps; plan with more epochs from the start, or stop here",
                  budget, planned_steps_, counts().steps));
}

void Account::count_step(double noise_multiplier) {
  ++spent_.private_steps;
  if (noise_multiplier > 0) {
    ++spent_.noised_steps;
    if (options_.secure) ++spent_.secret_steps;
  }
  if (reason_.empty()) spent_.history.add_to_kind({sampling_.rate, noise_multiplier, 1});
}

void Account::charge(const accountant::History& steps) {
  for (const accountant::GaussianPhase& phase : steps.phases()) {
    const auto count = static_cast<int64_t>(phase.steps);
    spent_.history.add_to_kind(phase);
    spent_.private_steps += count;
    spent_.noised_steps += count;
    if (options_.secure) spent_.secret_steps += count;
  }
  best_order_ = 0;
}

void Account::invalidate_claim(const std::string& reason) {
  if (reason_.empty()) reason_ = reason;
}

// Every order gives a bound; from step to step the best moves by little.
double Account::epsilon_so_far() {
  std::vector<double> orders = accountant::default_orders();
  if (best_order_ > 0) {
    std::erase_if(orders, [&](double order) {
      return order < 0.8 * best_order_ || order > 1.25 * best_order_;
    });
  }
  const accountant::RdpEpsilon found =
      accountant::rdp_epsilon(spent_.history.phases(), options_.delta, orders);
  best_order_ = found.best_order;
  // The noise was chosen so that all planned steps stay within the target.
  const bool as_planned = options_.target_epsilon > 0 && is_within_plan(0, 0);
  return as_planned ? std::min(found.epsilon, options_.target_epsilon) : found.epsilon;
}

SpentSteps Account::spent() const {
  SpentSteps spent = spent_;
  spent.why_no_epsilon = why_no_epsilon();
  return spent;
}

void Account::go_on_from(const SpentSteps& spent) {
  const accountant::History lost = spent_.history.beyond(spent.history);
  spent_ = spent;
  charge(lost);
  reason_ = first_reason_;  // the weights are the checkpoint's, whatever came before
  last_trainer_->exchange(trainer_);
  if (!spent.why_no_epsilon.empty())
    invalidate_claim("the resumed run had none: " + spent.why_no_epsilon);
  if (spent.history.num_steps() != static_cast<double>(spent.private_steps))
    invalidate_claim(fmt::format("of the {} private steps of the resumed run {} are accounted for",
                                 spent.private_steps, spent.history.num_steps()));
  if (spent.secret_steps != spent.noised_steps)
    invalidate_claim(fmt::format("of the {} noised steps of the resumed run {} had secret noise",
                                 spent.noised_steps, spent.secret_steps));
}

records::PrivacyPart Account::record() const {
  records::PrivacyPart part;
  part.sampler = sampling_.sampler;
  part.why_no_epsilon = why_no_epsilon();
  const bool claims = part.why_no_epsilon.empty();
  const accountant::Epsilon spent = claims ? epsilon() : accountant::Epsilon{};
  if (claims && !std::isfinite(spent.epsilon)) {
    part.why_no_epsilon = "the noise is too little for any finite epsilon";
  } else if (claims) {
    part.epsilon = spent.epsilon;
    part.delta = options_.delta;
    part.accountant = options_.accountant;
    if (std::isfinite(spent.best_order)) part.best_order = spent.best_order;
    if (std::isfinite(spent.lower)) part.epsilon_lower = spent.lower;
    part.sampling_rate = sampling_.rate;
    part.examples = static_cast<double>(sampling_.examples);
    part.expected_batch_size = static_cast<double>(sampling_.expected_batch_size);
    for (const accountant::GaussianPhase& phase : spent_.history.phases())
      part.history.push_back({phase.q, phase.sigma, phase.steps});
    if (options_.target_epsilon > 0) part.target_epsilon = options_.target_epsilon;
    part.note =
        "of the weights; losses, norms and shares of clipped samples in this file are exact "
        "figures of the data and not covered";
  }
  if (claims && options_.delta * static_cast<double>(sampling_.examples) >= 1)
    part.warning =
        fmt::format("delta is not below 1 / {}: giving away whole examples may have such a delta",
                    sampling_.examples);
  if (claims && noise_to_signal() > 1)
    part.warning += fmt::format(
        "{}the noise of a step is {:.3g} times the largest mean gradient along any direction",
        part.warning.empty() ? "" : "; ", noise_to_signal());
  part.noise = spent_.noised_steps == 0                     ? "none"
               : spent_.secret_steps == 0                   ? "counter"
               : spent_.secret_steps == spent_.noised_steps ? "secure"
                                                            : "mixed";
  return part;
}

}  // namespace moonshard::privacy
