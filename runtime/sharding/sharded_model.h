// fsdp: when units are gathered and released. A unit is gathered at its first use and may be
// released after its last. This holds in whatever order layers run: prefetching only gathers
// earlier.
#pragma once

#include "runtime/sharding/sharded_unit.h"
#include "runtime/sharding/unit_order.h"
#include "runtime/sharding/wrapped_model.h"

namespace moonshard::sharding {

class ShardedModel : public WrappedModel {
 public:
  ShardedModel(models::Model& model, const ShardingOptions& options,
               std::shared_ptr<comm::Communicator> group,
               std::shared_ptr<comm::Communicator> copies);
  ~ShardedModel() override;

  const std::vector<std::unique_ptr<models::Parameter>>& updated() const override {
    return updated_;
  }
  int64_t first_element(size_t index) const override { return first_elements_[index]; }
  void begin_step() override;
  void end_step() override;
  void abandon() override;
  bool is_current() const override;
  void expose_parameters() override;
  void expose_gradients() override;
  std::vector<KeptPart> kept_parts() override;
  std::vector<at::Tensor> kept_frozen() const override;
  void kept_parts_changed() override;

 protected:
  void check_use_outside(const models::ParamLayer& layer) const override;
  void put_in_place(size_t index) override;
  void forward_began(size_t index) override;
  void forward_ended(size_t index) override;
  void backward_began(size_t index) override;
  void backward_ended(size_t index, bool last_pass) override;
  void micro_batch_ended(size_t index) override;

 private:
  bool keeps_whole() const { return order_.keeps_whole(); }
  void take_back();
  /// Whether the unit is released while others run.
  bool steps_aside(size_t index) const {
    return order_.steps_aside(sharded_[index]->is_root(), sharded_[index]->traits().reshards);
  }

  UnitOrder order_;
  std::vector<std::unique_ptr<ShardedUnit>> sharded_;  ///< in forward order
  std::vector<std::unique_ptr<models::Parameter>> updated_;
  std::vector<int64_t> first_elements_;
  std::optional<size_t> running_;  ///< the unit whose layers ran last, of this micro-batch
  bool exposed_ = false;
};

}  // namespace moonshard::sharding
