// When units are gathered, released and reduced. Attached to a model's seam, it is told of every
// use of a layer; a unit's numbers are put in place at its first use and may go after its last.
// Whatever order layers run in, a unit that is needed is gathered: prefetching only makes it early.
#pragma once

#include "runtime/sharding/parallel.h"
#include "runtime/sharding/wrap_policy.h"

namespace moonshard::sharding {

class ShardedModel : public Parallel, public models::ParameterKeeper {
 public:
  ShardedModel(models::Model& model, const ShardingOptions& options,
               std::shared_ptr<comm::Communicator> group);
  ~ShardedModel() override;

  const std::vector<std::unique_ptr<models::Parameter>>& updated() const override;
  int64_t first_element(size_t index) const override;
  void begin_step() override;
  void on_complete(Completed completed) override;
  int64_t most_completed() const override;
  void begin_micro_batch(bool last) override;
  void begin_backward(bool last) override;
  void end_backward() override;
  void end_micro_batch() override;
  void finish_gradients() override;
  void end_step() override;
  void abandon() override;
  void expose_parameters() override;
  void expose_gradients() override;
  std::vector<KeptPart> kept_parts() override;
  void kept_parts_changed() override;
  void record_into(std::shared_ptr<profile::Timeline> timeline) override;
  ShardingMemory memory() const override { return context_.memory; }
  std::vector<std::string> unit_names() const override;
  std::vector<comm::Traffic> traffic() const override { return context_.group->traffic(); }
  const char* transport() const override { return context_.group->transport(); }

  void before_forward(const models::ParamLayer& layer) override;
  void after_forward(const models::ParamLayer& layer, bool in_graph) override;
  void before_backward(const models::ParamLayer& layer) override;
  void after_backward(const models::ParamLayer& layer) override;
  void gradients_added(const models::ParamLayer& layer) override;

 private:
  enum class Pass { None, Forward, Backward };

  Unit& unit_of(const models::ParamLayer& layer) { return *units_[unit_of_layer_[layer.index]]; }
  bool gathers() const { return context_.strategy != Strategy::Ddp; }
  void put_in_place(Unit& unit);
  void prefetch(size_t from, int64_t direction);
  void use_backward(Unit& unit, size_t index);
  void finish_unit_backward(Unit& unit, size_t index);
  void reduce(size_t index);
  bool hands_over_early() const;
  void complete_if_ready(size_t index);
  void complete(size_t index);
  void begin_span(Unit& unit, const char* what);
  void end_span(Unit& unit);
  void take_back();

  models::Model& model_;
  ShardingOptions options_;
  ShardingContext context_;
  std::vector<std::unique_ptr<Unit>> units_;  ///< in forward order
  std::vector<size_t> unit_of_layer_;
  std::vector<std::unique_ptr<models::Parameter>> updated_;
  std::vector<int64_t> first_elements_;
  std::vector<std::vector<size_t>> parts_of_unit_;  ///< places in updated()
  Completed completed_;
  Pass pass_ = Pass::None;
  bool last_micro_batch_ = true, last_pass_ = true, exposed_ = false;
  std::shared_ptr<profile::Timeline> timeline_;
};

}  // namespace moonshard::sharding
