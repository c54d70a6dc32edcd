#include <ATen/ATen.h>

#include "runtime/sharding/wrap_policy.h"
#include "runtime/sharding/wrapped_model.h"

namespace moonshard::sharding {
namespace {

// Parameters are always whole: only gradients are communicated. Nothing is cut; a row is a bucket
// of gradients.
class Bucket : public Unit {
 public:
  Bucket(const UnitPlan& plan, ShardingContext& context) : Unit(plan, Storage::Whole, context) {
    std::vector<models::Parameter*> trained;
    for (models::Parameter* parameter : plan.parameters)
      if (parameter->trainable) trained.push_back(parameter);
    layout_ = FlatLayout(trained, 0, 1);
  }

 protected:
  const FlatLayout& trained_layout() const override { return layout_; }

  Reduction send(const at::Tensor& row) override {
    return {context_.group->all_reduce(row, name()), row, row};
  }

  void reduce_alone(bool, bool) override {}  // already where the optimizer reads them

  // Only at the end: a later micro-batch would add local gradients to the sum over ranks.
  void sums_ended() override {
    if (!sums_.defined()) return;
    for (const Piece& piece : layout_.pieces)
      piece.parameter->grad = FlatLayout::whole_view(sums_, piece);
  }

 private:
  FlatLayout layout_;
};

// ddp: every rank has all parameters and all optimizer state, and gradients are summed over ranks,
// bucket by bucket as backward produces them.
class Replicated : public WrappedModel {
 public:
  Replicated(models::Model& model, const ShardingOptions& options,
             std::shared_ptr<comm::Communicator> group);

  const std::vector<std::unique_ptr<models::Parameter>>& updated() const override {
    return model_.parameters();
  }
  std::vector<KeptPart> kept_parts() override { return whole_parts(model_); }

 private:
  void place(models::Parameter& parameter);

  std::vector<std::unique_ptr<Bucket>> buckets_;
};

Replicated::Replicated(models::Model& model, const ShardingOptions& options,
                       std::shared_ptr<comm::Communicator> group)
    : WrappedModel(model, options, std::move(group)) {
  const at::NoGradGuard no_grad;
  for (const UnitPlan& plan : plan_units(model, options)) {
    buckets_.push_back(std::make_unique<Bucket>(plan, context_));
    std::vector<size_t> parts;
    for (models::Parameter* parameter : plan.parameters) {
      place(*parameter);
      if (parameter->trainable) parts.push_back(parameter->index);
    }
    add_unit(*buckets_.back(), plan.layers, std::move(parts));
  }
  attach();
}

// A deferred model's parameters are initialised in full on every rank.
void Replicated::place(models::Parameter& parameter) {
  if (parameter.value.is_meta()) {
    parameter.value =
        at::empty(parameter.value.sizes(), parameter.value.options().device(context_.device));
    model_.initialise(parameter);
  }
  context_.memory.parameters += static_cast<int64_t>(parameter.value.nbytes());
}

}  // namespace

std::unique_ptr<Parallel> make_replicated(models::Model& model, const ShardingOptions& options,
                                          std::shared_ptr<comm::Communicator> group) {
  return std::make_unique<Replicated>(model, options, std::move(group));
}

}  // namespace moonshard::sharding
