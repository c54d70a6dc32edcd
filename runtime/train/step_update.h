// Noise, division and optimizer of one step: early, for parts whose gradients are complete while
// others are still being summed, or for all of them at the end.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/interrupt.h"
#include "runtime/optim/optimizer.h"
#include "runtime/profile/phases.h"
#include "runtime/sharding/parallel.h"

namespace moonshard::train {

/// Note: updates during the backward pass. A failure before the first update changes nothing. After
/// it nothing should fail: optimizer states are made before it, memory for the gradients of the
/// largest unit has been checked to be available, and interrupts wait. `half_done` says that an
/// update has happened; the step clears it at its end. Updates beside the step are all done, and
/// their errors thrown, in apply_rest. If something still fails, the weights are a
/// mixture of two steps, and a part of the step's noise has been used: training must not continue
/// from there.
class StepUpdate {
 public:
  StepUpdate(sharding::Parallel& parallel, optim::Optimizer& optimizer,
             const optim::NoiseSpec& noise, at::ScalarType sums, double lr, bool& half_done);
  ~StepUpdate();
  StepUpdate(const StepUpdate&) = delete;
  StepUpdate& operator=(const StepUpdate&) = delete;

  /// Of these parts, inside of the phase that runs. On the thread that has their gradients, or with
  /// offload beside it (Parallel::work_beside).
  void apply(const std::string& unit, const std::vector<size_t>& parts, profile::PhaseTimer& timer);
  /// Of all that are left.
  void apply_rest();
  /// Gradients are divided by this instead. Before the first update.
  void divide_by(double denominator) { noise_.denominator = denominator; }
  /// Refuses any update until it is opened again: while a step is captured (see the note in
  /// step_graph.h).
  void close(bool closed) { closed_ = closed; }

 private:
  void begin(bool others_follow);
  /// The parts, which are marked as done.
  std::vector<size_t> taken(const std::vector<size_t>& parts);
  void update(const std::vector<size_t>& parts);
  /// A gradient on its way to the host: its noise is drawn where it is, which is far cheaper.
  void add_noise_early(const models::Parameter& part, at::Tensor& gradient);

  sharding::Parallel& parallel_;
  optim::Optimizer& optimizer_;
  optim::NoiseSpec noise_;
  at::ScalarType sums_;  ///< dtype of gradient sums
  bool& half_done_;
  bool closed_ = false;
  // By place in updated(). Not bits: the thread of an update reads while others are set.
  std::vector<char> is_done_, has_noise_;
  std::unordered_map<const models::Parameter*, size_t> places_;  ///< with offload
  std::optional<InterruptHold> hold_;
};

}  // namespace moonshard::train
