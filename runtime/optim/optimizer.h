// Optimizers on a list of parameters. Each reads Parameter::grad and updates Parameter::value in
// place.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/core/options.h"
#include "runtime/models/parameter.h"

namespace moonshard::optim {

struct OptimizerOptions {
  std::string optimizer = "sgd";
  double lr = 1e-5;
  std::string lr_schedule = "constant";
  int64_t lr_warmup_steps = 0;
  int64_t lr_total_steps = 0;
  double lr_min_ratio = 0;
  double momentum = 0;
  double weight_decay = -1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
};

template <class T>
void add_optimizer_options(OptionSchema& schema) {
  schema.choice<T>("optimizer", &T::optimizer, {"sgd", "adam", "adamw"}, "update rule");
  schema.real<T>("lr", &T::lr, 0, 1e6, "learning rate").aliases = {"learning_rate"};
  schema.choice<T>("lr_schedule", &T::lr_schedule, {"constant", "linear", "cosine"},
                   "how the learning rate falls after its warm-up");
  schema.integer<T>("lr_warmup_steps", &T::lr_warmup_steps, 0, 1e12,
                    "steps over which the learning rate rises from 0");
  schema.integer<T>("lr_total_steps", &T::lr_total_steps, 0, 1e12,
                    "steps until the schedule's end; 0 takes the experiment's own");
  schema.real<T>("lr_min_ratio", &T::lr_min_ratio, 0, 1,
                 "share of the learning rate that is left at the schedule's end");
  schema.real<T>("momentum", &T::momentum, 0, 0.999999999, "sgd: decay of the running sum");
  schema.real<T>("weight_decay", &T::weight_decay, -1, 1e6,
                 "adamw: decoupled decay; adam: added to the gradient; -1 takes 0.1 and 0");
  schema.real<T>("beta1", &T::beta1, 0, 0.999999999, "adam, adamw: decay of the mean");
  schema.real<T>("beta2", &T::beta2, 0, 0.999999999, "adam, adamw: decay of the mean square");
  schema.real<T>("eps", &T::eps, 0, 1, "adam, adamw: added to the root of the mean square");
}

/// What an optimizer remembers of one parameter, or of a part of one.
struct ParameterState {
  int64_t steps = 0;                                        ///< updates so far
  std::vector<std::pair<std::string, at::Tensor>> tensors;  ///< as many numbers as the value has
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One update from the parameters' grad with this learning rate; parameters without a grad are
  /// left alone.
  virtual void step(const std::vector<std::unique_ptr<models::Parameter>>& parameters,
                    double lr) = 0;
  /// Bytes of moments and other state held now.
  virtual int64_t state_bytes() const = 0;

  // ---- for saving and going on later ----------------------------------------------------------
  /// Names of the tensors that it keeps for a parameter; none when it remembers nothing.
  virtual std::vector<std::string> state_names() const = 0;
  /// The tensors are its own memory, not copies. None before the parameter's first update.
  virtual ParameterState state(const models::Parameter& parameter) const = 0;
  /// Takes the tensors over; they are of the value's shape and on its device.
  virtual void set_state(const models::Parameter& parameter, const ParameterState& state) = 0;
  /// As if new.
  virtual void forget_states() = 0;
};

/// The learning rate of a step (1 is the first). After a warm-up it stays, or falls along a line or
/// a half cosine to lr_min_ratio of itself at lr_total_steps and stays there. Throws UsageError
/// when a falling schedule has no end.
double learning_rate(const OptimizerOptions& options, int64_t step);

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace moonshard::optim
