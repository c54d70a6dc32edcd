// What every comparison of one case is made of: a model of the subject in a format, and the options
// that the variant changes. Quiet and deterministic unless the variant says otherwise.
#pragma once

#include <memory>

#include "runtime/comm/world.h"
#include "runtime/train/trainer.h"
#include "runtime/verify/cases.h"
#include "runtime/verify/verify.h"

namespace moonshard::verify {

class CaseParts {
 protected:
  CaseParts(const VerifyOptions& options, const Subject& subject, const Variant& variant,
            const Format& format, std::shared_ptr<comm::World> world);
  /// The model as the options describe it, before the variant changes it.
  models::ModelOptions model_options(const VerifyOptions& options) const;

  Subject subject_;
  Variant variant_;
  Format format_;
  std::shared_ptr<comm::World> world_;
  sharding::ShardingOptions sharding_;
  std::shared_ptr<privacy::StepHooks> hooks_;
  privacy::ClipOptions clip_;
  train::StepOptions step_;
};

}  // namespace moonshard::verify
