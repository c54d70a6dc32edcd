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
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
};

template <class T>
void add_optimizer_options(OptionSchema& schema) {
  schema.choice<T>("optimizer", &T::optimizer, {"sgd", "adamw"}, "update rule");
  schema.real<T>("lr", &T::lr, 0, 1e6, "learning rate").aliases = {"learning_rate"};
  schema.real<T>("weight_decay", &T::weight_decay, 0, 1e6, "decoupled weight decay of adamw");
  schema.real<T>("beta1", &T::beta1, 0, 0.999999999, "adamw: decay of the mean");
  schema.real<T>("beta2", &T::beta2, 0, 0.999999999, "adamw: decay of the mean square");
  schema.real<T>("eps", &T::eps, 0, 1, "adamw: added to the root of the mean square");
}

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One update from the parameters' grad; parameters without one are left alone.
  virtual void step(const std::vector<std::unique_ptr<models::Parameter>>& parameters) = 0;
  /// Bytes of moments and other state held now.
  virtual int64_t state_bytes() const = 0;
};

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace moonshard::optim
