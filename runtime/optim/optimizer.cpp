#include "runtime/optim/optimizer.h"

#include "runtime/core/check.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/sgd.h"

namespace moonshard::optim {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  if (options.optimizer == "sgd") return std::make_unique<Sgd>(options);
  MS_ASSERT(options.optimizer == "adamw", "optimizer '{}'", options.optimizer);
  return std::make_unique<AdamW>(options);
}

}  // namespace moonshard::optim
