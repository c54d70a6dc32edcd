// Optimizers on a list of parameters. Each reads Parameter::grad and rows, and updates
// Parameter::value in place: noise, division and rule in one pass (kernels/fused_update).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kernels/fused_update/fused_update.h"
#include "kernels/secure_noise/secure_noise.h"
#include "runtime/models/parameter.h"
#include "runtime/optim/optimizer_options.h"

namespace moonshard::optim {

/// An optimizer's state for one parameter, or for a part of one.
struct ParameterState {
  int64_t steps = 0;                                        ///< updates so far
  std::vector<std::pair<std::string, at::Tensor>> tensors;  ///< as many elements as the value
};

/// A parameter, or the part of one that this rank updates.
struct UpdatedPart {
  models::Parameter* parameter = nullptr;
  int64_t first_element = 0;  ///< where in the flattened parameter it begins
};

/// Applied to gradients before the update rule: g = (g + std z) / denominator.
struct NoiseSpec {
  double std = 0;
  double denominator = 1;
  uint64_t key = 0;  ///< of the run
  /// Where given, noise is drawn under this secret key of the process instead of `key`.
  std::shared_ptr<const kernels::ChaChaKey> secret;
  uint32_t step = 0;  ///< 1 is the first
  /// Of the noise in g, drawn here or before: what option noise_correction takes out.
  double variance = 0;
  /// Also updates trainable parameters without a gradient, by their noise. Otherwise they are left
  /// alone.
  bool updates_all = false;
};

/// Stochastic gradient descent with optional momentum, Adam (Kingma and Ba 2015; weight decay is
/// added to the gradient) and AdamW (Loshchilov and Hutter 2019; decay is decoupled). Adam's
/// moments have the value's dtype (float32 where it is in halves), the sum of momentum that of
/// gradients; with state_dtype = bfloat16 all are kept in that (narrow_state.h). A step is
/// begin_step, update for any number of disjoint sets of parameters, end_step.
class Optimizer {
 public:
  explicit Optimizer(const OptimizerOptions& options);

  void begin_step(double lr);
  /// Allocates the state of all parts that update() would change, so that update() allocates none
  /// (but for the slices of narrow_state.h).
  /// `sums` is the dtype of gradients that do not exist yet.
  void prepare(const std::vector<UpdatedPart>& parts, const NoiseSpec& noise,
               at::ScalarType sums = at::kFloat);
  /// One update from the parts' grad and rows, whose contents are undefined afterwards. May run on
  /// several threads at once, for different parts.
  void update(const std::vector<UpdatedPart>& parts, const NoiseSpec& noise);
  void end_step();
  /// A whole step on whole parameters, without noise.
  void step(const std::vector<std::unique_ptr<models::Parameter>>& parameters, double lr);

  /// Bytes of moments and other state held now.
  int64_t state_bytes() const;

  // ---- for checkpoints -------------------------------------------------------------------------
  /// Names of the tensors that it keeps for a parameter; none when it is stateless.
  const std::vector<std::string>& state_names() const { return state_names_; }
  /// What the parameter's states are kept in; `sums` as in prepare().
  at::ScalarType state_type(const models::Parameter& parameter,
                            at::ScalarType sums = at::kFloat) const;
  /// The tensors are its own memory, not copies. None before the parameter's first update.
  ParameterState state(const models::Parameter& parameter) const;
  /// Takes the tensors over; they are of the value's shape and on its device.
  void set_state(const models::Parameter& parameter, const ParameterState& state);
  /// Resets to the initial state.
  void forget_states() { states_.clear(); }

 private:
  struct State {
    std::vector<at::Tensor> tensors;  ///< in the order of state_names_
    int64_t updates = 0;
  };
  bool is_adam() const { return state_names_.size() == 2; }
  /// A sum alone is the same after any number of updates, unless a coin rounded it.
  bool counts_updates() const { return is_adam() || is_narrow_; }
  void apply(std::vector<kernels::UpdatePart>& parts, const kernels::UpdateRule& rule,
             const kernels::UpdateNoise& noise) const;
  bool decays(const models::Parameter& parameter);

  kernels::UpdateRule rule_;
  std::vector<std::string> no_decay_;  ///< globs
  bool corrects_noise_ = false, is_narrow_ = false;
  double noise_floor_ = 0;
  std::map<uint32_t, bool> decays_;  ///< by the parameter's index, as far as it was asked for
  std::vector<std::string> state_names_;
  std::map<uint32_t, State> states_;  ///< by the parameter's index; empty when stateless
  std::set<uint32_t> updated_;        ///< in this step
  std::mutex mutex_;                  ///< of the three above, while updates run
};

/// The learning rate of a step (1 is the first). After a warm-up it is constant, or decays linearly
/// or along a half cosine to lr_min_ratio of itself at lr_total_steps and stays there, or falls
/// with the root of the steps (inverse_sqrt: lr sqrt(w / step), w the warm-up's steps, at least 1).
/// Throws UsageError when a schedule that needs an end has none.
double learning_rate(const OptimizerOptions& options, int64_t step);

/// Globs of option no_decay, its words spelt out. Throws UsageError for a glob that matches none of
/// the names; words may.
std::vector<std::string> no_decay_globs(const std::string& list,
                                        const std::vector<std::string>& names);

// Adds a private step's noise to one parameter's gradient as a separate pass: where gradients are
// observed. Otherwise it is part of the update (kernels/fused_update).

/// target += std z, elements first … of the parameter's noise stream, or of another purpose of the
/// step (kernels/counter_noise). Contiguous, float32 or wider. Does nothing without a std.
void draw_noise(at::Tensor& target, const NoiseSpec& noise, uint32_t parameter,
                int64_t first_element = 0);

/// grad += std z for a trainable parameter, which gets a gradient if it has none; rows are summed
/// first. In float32 or wider. Without a std it only sums rows.
void add_noise(models::Parameter& parameter, int64_t first_element, const NoiseSpec& noise);

}  // namespace moonshard::optim
