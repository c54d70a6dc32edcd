#include "runtime/privacy/release.h"

#include <cmath>

#include <ATen/ATen.h>

#include "kernels/counter_noise/counter_noise.h"
#include "kernels/secure_noise/secure_noise.h"
#include "runtime/base/check.h"

namespace moonshard::privacy {
namespace {

// More cells would drown in their noise.
constexpr int64_t kMostReleasedLabels = 100;
// Of noise from the seed; beside those of counter_noise_launch.h. A secret is a release's own.
constexpr uint32_t kPurposeRelease = 0x60000000u;

}  // namespace

ReleasedEvaluation noised(const analysis::EvaluatedSamples& samples, const ReleaseOptions& options,
                          const kernels::ChaChaKey* secret, uint64_t seed, int64_t count) {
  MS_CHECK(options.loss_bound > 0 && std::isfinite(options.loss_bound),
           "evaluate: option 'loss_bound': expected a number above 0 beside noise_multiplier, got "
           "{}; larger losses count as this much",
           options.loss_bound);
  const bool classifies = !samples.labels.empty();
  const int64_t labels = classifies ? samples.num_labels : 0;
  MS_CHECK(labels <= kMostReleasedLabels,
           "evaluate: expected at most {} classes for a noised evaluation, got {}",
           kMostReleasedLabels, labels);
  const auto n = static_cast<double>(samples.losses.size());
  // One cell of the matrix is 1, and the loss is a share of its bound.
  at::Tensor sums = at::zeros({labels * labels + 1}, at::kDouble);
  double* cell = sums.data_ptr<double>();
  for (size_t i = 0; i < samples.losses.size(); ++i) {
    if (classifies) cell[samples.labels[i] * labels + samples.predicted[i]] += 1;
    const double loss = std::isfinite(samples.losses[i])
                            ? std::clamp(samples.losses[i], 0.0, options.loss_bound)
                            : options.loss_bound;
    cell[labels * labels] += loss / options.loss_bound;
  }
  ReleasedEvaluation released;
  released.sensitivity = std::sqrt(classifies ? 2.0 : 1.0);
  const double std = options.noise_multiplier * released.sensitivity;
  const auto step = static_cast<uint32_t>(count);
  if (secret != nullptr) {
    kernels::add_secure_noise(sums, std, {*secret, step, kPurposeRelease});
  } else {
    kernels::add_counter_noise(sums, std, {seed, step, kPurposeRelease});
  }
  released.figures.samples = static_cast<int64_t>(samples.losses.size());
  released.figures.loss = std::clamp(cell[labels * labels] / n, 0.0, 1.0) * options.loss_bound;
  released.loss_noise = std * options.loss_bound / n;
  if (!classifies) return released;
  analysis::add_class_figures(released.figures, {cell, cell + labels * labels}, n);
  released.accuracy_noise = std * std::sqrt(static_cast<double>(labels)) / n;
  // Other samples, and other noise: two variances.
  const double p = released.figures.accuracy, z = analysis::kNormalQuantile;
  const double half =
      z * std::sqrt(p * (1 - p) / n + released.accuracy_noise * released.accuracy_noise);
  released.figures.accuracy_interval = {p, std::max(0.0, p - half), std::min(1.0, p + half)};
  return released;
}

}  // namespace moonshard::privacy
