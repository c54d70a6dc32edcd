// From norms to factors: the styles of clipping, and the bound that the noise is scaled to.
//   flat       min(1, C / (norm + 1e-6)) on the norm over all parameters
//   per_layer  the same on each layer's own norm, with C / sqrt(number of layers)
//   automatic  C / (norm + gamma): every sample is normalised (Bu et al. 2022)
//   adaptive   flat, with C moving towards a quantile of the norms (Andrew et al. 2021)
//   groups     flat on each group of parameters by itself, with bounds C_k; C = sqrt(sum C_k^2)
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/privacy/clip_options.h"

namespace moonshard::privacy {

/// target += std x standard normals.
using AddNoise = std::function<void(at::Tensor& target, double std)>;

class Clipping {
 public:
  /// `trained`: names of the parameters, which clipping = groups divides. Throws UsageError where
  /// a group has none of them.
  explicit Clipping(const ClipOptions& options, const std::vector<std::string>& trained = {});

  const ClipOptions& options() const { return options_; }
  bool per_layer() const { return options_.clipping == "per_layer"; }
  /// C now: no sample's contribution to the sum has a larger norm.
  double bound() const { return bound_; }
  /// Continues from the C of an earlier run.
  void set_bound(double bound) { bound_ = bound; }
  /// Of each group that has a bound of its own, the bound over C: their squares add up to 1. One
  /// group but for clipping = groups.
  const std::vector<double>& shares() const { return shares_; }
  /// The parameter's group, a place in shares().
  size_t group_of(const std::string& parameter) const;
  /// Factors [B] of norms [B], of the whole gradient or of a part whose bound is `share` of C. A
  /// sample whose norm is not finite has no bounded contribution: its factor is 0.
  at::Tensor factors(const at::Tensor& norms, double share = 1) const;
  /// Noise on the summed gradient, as a standard deviation.
  double noise_std(int64_t expected_batch) const;
  /// After a step with these norms of all its samples: moves C (adaptive). The count of samples
  /// below C is noised by `add_noise`.
  void end_step(const at::Tensor& norms, int64_t expected_batch, const AddNoise& add_noise);

 private:
  double count_noise(int64_t expected_batch) const;

  void form_groups(const std::vector<std::string>& trained);

  ClipOptions options_;
  double bound_;
  std::vector<double> shares_{1.0};
  std::map<std::string, size_t> group_of_;  ///< clipping = groups: by parameter
};

/// min(1, C / (norm + 1e-6)) for each sample, 0 where the norm is not finite.
at::Tensor clip_factors(const at::Tensor& norms, double max_grad_norm);

}  // namespace moonshard::privacy
