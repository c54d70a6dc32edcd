#include "runtime/privacy/clipping.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"
#include "runtime/privacy/clip_groups.h"

namespace moonshard::privacy {
namespace {

// A factor below this leaves the normal numbers of float32 and would be rounded up by as much as a
// factor of two: such a sample is dropped like one without a finite norm.
constexpr double kSmallestFactor = 1e-30;

at::Tensor usable_or_zero(const at::Tensor& factors, const at::Tensor& norms) {
  return at::where(norms.isfinite().logical_and(factors >= kSmallestFactor), factors,
                   at::zeros_like(factors));
}

}  // namespace

at::Tensor clip_factors(const at::Tensor& norms, double max_grad_norm) {
  // 1e-6 keeps a zero gradient's factor finite; it can only make the factor smaller.
  return usable_or_zero((max_grad_norm / (norms + 1e-6)).clamp_max(1.0), norms);
}

Clipping::Clipping(const ClipOptions& options, const std::vector<std::string>& trained)
    : options_(options), bound_(options.max_grad_norm) {
  const bool has_groups = options.clipping == "groups";
  MS_CHECK(has_groups || options.clip_groups.empty(),
           "clip: option 'clip_groups': expected clipping = groups beside it, got {}",
           options.clipping);
  if (has_groups && options.mode != "none") form_groups(trained);
}

// Those that have a trained parameter, and the rest where there is one.
void Clipping::form_groups(const std::vector<std::string>& trained) {
  std::vector<ClipGroup> groups = parse_clip_groups(options_.clip_groups);
  MS_CHECK(!groups.empty(),
           "clip: clipping = groups: expected groups of parameters and their bounds, got none; "
           "give clip_groups, '*lora_A* = 0.5; score.* = 1' for example");
  std::vector<bool> is_used(groups.size() + 1, false);
  for (const std::string& name : trained) {
    group_of_[name] = clip_group_of(groups, name);
    is_used[group_of_[name]] = true;
  }
  for (size_t k = 0; k < groups.size(); ++k)
    MS_CHECK(is_used[k],
             "clip: option 'clip_groups': expected globs of trained parameters, got '{}', which "
             "matches none that an earlier group leaves; model.trainable lists them",
             clip_groups_text({groups[k]}));
  if (is_used.back()) groups.push_back({{}, options_.max_grad_norm});
  double squares = 0;
  for (const ClipGroup& group : groups) squares += group.bound * group.bound;
  bound_ = std::sqrt(squares);
  shares_.clear();
  for (const ClipGroup& group : groups) shares_.push_back(group.bound / bound_);
}

size_t Clipping::group_of(const std::string& parameter) const {
  if (shares_.size() == 1) return 0;
  const auto found = group_of_.find(parameter);
  MS_CHECK(found != group_of_.end(),
           "clip: expected parameter '{}' in one of the groups, got one that was frozen when they "
           "were formed; make a new trainer",
           parameter);
  return found->second;
}

at::Tensor Clipping::factors(const at::Tensor& norms, double share) const {
  if (options_.clipping == "automatic")
    return usable_or_zero(bound_ / (norms + options_.stability), norms);
  return clip_factors(norms, bound_ * share);
}

// A twentieth of the batch, as the paper proposes, unless the user says otherwise.
double Clipping::count_noise(int64_t expected_batch) const {
  return options_.quantile_noise > 0 ? options_.quantile_noise
                                     : static_cast<double>(expected_batch) / 20.0;
}

double Clipping::noise_std(int64_t expected_batch) const {
  double multiplier = options_.noise_multiplier;
  if (options_.clipping == "adaptive" && multiplier > 0) {
    // The noisy count spends a part of the budget; the gradient's noise grows so that both together
    // cost what noise_multiplier alone would.
    const double count = count_noise(expected_batch);
    MS_CHECK(multiplier < 2 * count,
             "clip: adaptive clipping expects noise_multiplier below 2 x quantile_noise = {}, got "
             "{}; raise quantile_noise or the batch",
             2 * count, multiplier);
    multiplier = 1 / std::sqrt(1 / (multiplier * multiplier) - 1 / (4 * count * count));
  }
  return multiplier * bound_;
}

void Clipping::end_step(const at::Tensor& norms, int64_t expected_batch,
                        const AddNoise& add_noise) {
  if (options_.clipping != "adaptive") return;
  // Samples below C count one half, the others minus one half: one sample more or less then moves
  // the sum by one half, which is what noise_std accounts for. A count of ones and zeros would move
  // by one, and cost four times as much.
  at::Tensor half_sum = at::zeros({1}, at::kDouble);
  if (norms.defined() && norms.numel() > 0) {
    const double samples = static_cast<double>(norms.numel());
    half_sum.fill_(norms.le(bound_).sum().item<double>() - samples / 2);
  }
  if (options_.noise_multiplier > 0) add_noise(half_sum, count_noise(expected_batch));
  const double share = half_sum.item<double>() / static_cast<double>(expected_batch) + 0.5;
  // Within what max_grad_norm itself may be: a bound of 0 or infinity would end the training.
  bound_ = std::clamp(bound_ * std::exp(-options_.quantile_lr * (share - options_.target_quantile)),
                      1e-12, 1e12);
}

}  // namespace moonshard::privacy
