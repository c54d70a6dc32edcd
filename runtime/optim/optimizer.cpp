#include "runtime/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/core/check.h"
#include "runtime/optim/adam.h"
#include "runtime/optim/sgd.h"

namespace moonshard::optim {

double learning_rate(const OptimizerOptions& options, int64_t step) {
  if (step <= options.lr_warmup_steps) {
    return options.lr * static_cast<double>(step) / static_cast<double>(options.lr_warmup_steps);
  }
  if (options.lr_schedule == "constant") return options.lr;
  MS_CHECK(options.lr_total_steps > options.lr_warmup_steps,
           "optim: lr_schedule {} expects lr_total_steps above lr_warmup_steps = {}, got {}",
           options.lr_schedule, options.lr_warmup_steps, options.lr_total_steps);
  const double done =
      std::min(1.0, static_cast<double>(step - options.lr_warmup_steps) /
                        static_cast<double>(options.lr_total_steps - options.lr_warmup_steps));
  const double left =
      options.lr_schedule == "linear" ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2;
  return options.lr * (options.lr_min_ratio + (1 - options.lr_min_ratio) * left);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  if (options.optimizer == "sgd") return std::make_unique<Sgd>(options);
  return std::make_unique<Adam>(options);
}

}  // namespace moonshard::optim
