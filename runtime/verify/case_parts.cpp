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

std::string CaseParts::error_of(const std::function<void()>& comparison) {
  try {
    comparison();
  } catch (const Interrupted&) {
    throw;
  } catch (const comm::CommError&) {
    throw;
  } catch (const std::exception& problem) {
    return problem.what();
  }
  return "";
}

Cell CaseParts::cell(const std::string& engine, const std::string& layer, const Worst& found,
                     double tolerance, const std::string& error) const {
  return {engine,       subject_.model, subject_.task,
          layer,        variant_.name,  format_.name,
          found.error,  tolerance,      found.error <= tolerance,
          found.name(), error};
}

}  // namespace moonshard::verify
