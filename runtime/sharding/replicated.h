// ddp: every rank has all parameters and all optimizer state, and gradients are summed over ranks,
// bucket by bucket as backward produces them.
#pragma once

#include "runtime/sharding/wrapped_model.h"

namespace moonshard::sharding {

class Replicated : public WrappedModel {
 public:
  Replicated(models::Model& model, const ShardingOptions& options,
             std::shared_ptr<comm::Communicator> group);
  ~Replicated() override;

  const std::vector<std::unique_ptr<models::Parameter>>& updated() const override {
    return model_.parameters();
  }
  std::vector<KeptPart> kept_parts() override { return whole_parts(model_); }

 private:
  class Bucket;
  void place(models::Parameter& parameter);

  std::vector<std::unique_ptr<Bucket>> buckets_;
};

}  // namespace moonshard::sharding
