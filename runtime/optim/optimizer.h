// Optimizers on a list of parameters. Each reads Parameter::grad and rows, and updates
// Parameter::value in place: noise, division and rule in one pass (kernels/fused_update).
#pragma once

#include <memory>
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
  /// Also updates trainable parameters without a gradient, by their noise. Otherwise they are left
  /// alone.
  bool updates_all = false;
};

/// A step is begin_step, update for any number of disjoint sets of parameters, end_step.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  void begin_step(double lr);
  /// Allocates the state of all parts that update() would change, so that update() allocates none.
  /// `sums` is the dtype of gradients that do not exist yet.
  void prepare(const std::vector<UpdatedPart>& parts, const NoiseSpec& noise,
               at::ScalarType sums = at::kFloat);
  /// One update from the parts' grad and rows, whose contents are undefined afterwards.
  void update(const std::vector<UpdatedPart>& parts, const NoiseSpec& noise);
  void end_step();
  /// A whole step on whole parameters, without noise.
  void step(const std::vector<std::unique_ptr<models::Parameter>>& parameters, double lr);

  /// Bytes of moments and other state held now.
  virtual int64_t state_bytes() const = 0;

  // ---- for checkpoints -------------------------------------------------------------------------
  /// Names of the tensors that it keeps for a parameter; none when it is stateless.
  virtual std::vector<std::string> state_names() const = 0;
  /// The tensors are its own memory, not copies. None before the parameter's first update.
  virtual ParameterState state(const models::Parameter& parameter) const = 0;
  /// Takes the tensors over; they are of the value's shape and on its device.
  virtual void set_state(const models::Parameter& parameter, const ParameterState& state) = 0;
  /// Resets to the initial state.
  virtual void forget_states() = 0;

 protected:
  virtual kernels::UpdateRule rule() const = 0;
  /// Creates the parameter's state where there is none yet.
  virtual void make_state(const models::Parameter& parameter, at::ScalarType sums) = 0;
  /// Puts the parameter's state into the part, and counts the update.
  virtual void use_state(const models::Parameter& parameter, kernels::UpdatePart& part) = 0;

 private:
  double lr_ = 0;
  std::set<uint32_t> updated_;  ///< in this step
};

/// The learning rate of a step (1 is the first). After a warm-up it is constant, or decays linearly
/// or along a half cosine to lr_min_ratio of itself at lr_total_steps and stays there. Throws
/// UsageError when a decaying schedule has no end.
double learning_rate(const OptimizerOptions& options, int64_t step);

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace moonshard::optim
