#include "runtime/verify/case_parts.h"

namespace moonshard::verify {

CaseParts::CaseParts(const VerifyOptions& options, const Subject& subject, const Variant& variant,
                     const Format& format, std::shared_ptr<comm::World> world)
    : subject_(subject),
      variant_(variant),
      format_(format),
      world_(std::move(world)),
      sharding_(options.sharding),
      hooks_(options.hooks) {
  clip_.noise_multiplier = 0;
  step_.deterministic = true;
}

models::ModelOptions CaseParts::model_options(const VerifyOptions& options) const {
  models::ModelOptions model;
  model.model = subject_.model;
  model.task = subject_.task;
  model.device = options.device;
  model.dtype = format_.dtype;
  model.param_dtype = format_.param_dtype;
  model.seed = options.seed;
  return model;
}

}  // namespace moonshard::verify
