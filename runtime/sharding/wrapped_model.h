// A model whose parameters are grouped into units. Attached to the model's seam, it is notified of
// every use of a layer: it knows when a unit's gradients are complete, reduces them over ranks and
// passes them to the updater. Wrappers with whole parameters on every rank (ddp, in parallel.cpp)
// need no more; sharded_model.h adds when units are gathered and released.
#pragma once

#include <deque>

#include "runtime/sharding/parallel.h"
#include "runtime/sharding/unit.h"

namespace moonshard::sharding {

class WrappedModel : public Parallel, public models::ParameterKeeper {
 public:
  ~WrappedModel() override;

  void begin_step() override;
  void on_complete(Completed completed) override;
  void on_leaving(Leaving leaving) override;
  bool works_beside() const override { return context_.works_beside; }
  bool is_beside(size_t part) const override { return part_is_beside_[part] != 0; }
  void work_beside(std::function<void()> work) override;
  void wait_for_work() override;
  int64_t most_completed() const override;
  void begin_micro_batch(bool last) override;
  void begin_backward(bool last) override;
  void end_backward() override;
  void end_micro_batch() override;
  void finish_gradients() override;
  void end_step() override;
  void abandon() override;
  void set_captured(bool captured) override;
  void watch_replay() override;
  void record_into(std::shared_ptr<profile::Timeline> timeline) override;
  ShardingMemory memory() const override { return context_.memory; }
  std::vector<std::string> unit_names() const override;
  std::vector<comm::Traffic> traffic() const override;
  int64_t copies_of_parts() const override { return options_.replicate; }
  const char* transport() const override { return context_.group->transport(); }

  void before_forward(const models::ParamLayer& layer) override;
  void after_forward(const models::ParamLayer& layer, bool in_graph) override;
  void before_backward(const models::ParamLayer& layer) override;
  void after_backward(const models::ParamLayer& layer) override;
  void gradients_added(const models::ParamLayer& layer) override;

 protected:
  /// Throws UsageError for a model that is wrapped already, or whose values are gone.
  WrappedModel(models::Model& model, const ShardingOptions& options,
               std::shared_ptr<comm::Communicator> group);
  /// Units in the order of the forward pass; `parts` are its indices in updated(). They live as
  /// long as this.
  void add_unit(Unit& unit, const std::vector<const models::ParamLayer*>& layers,
                std::vector<size_t> parts);
  /// All units have been added.
  void attach();

  // ---- hooks of a wrapper, by the unit's index ------------------------------------------------
  /// A layer is used while no step runs.
  virtual void check_use_outside(const models::ParamLayer&) const {}
  /// Its values are about to be read.
  virtual void put_in_place(size_t) {}
  virtual void forward_began(size_t) {}
  virtual void forward_ended(size_t) {}
  virtual void backward_began(size_t) {}
  /// `last_pass`: no other backward of this micro-batch follows.
  virtual void backward_ended(size_t, bool /*last_pass*/) {}
  virtual void micro_batch_ended(size_t) {}

  models::Model& model_;
  ShardingOptions options_;
  ShardingContext context_;

 private:
  enum class Pass { None, Forward, Backward };

  size_t unit_of(const models::ParamLayer& layer) const { return unit_of_layer_[layer.index]; }
  void use_backward(size_t index);
  void finish_unit_backward(size_t index);
  void reduce(size_t index);
  /// Waits for the oldest reductions until at most so many are under way. Where there are copies of
  /// the parts, these are the ones across them; what is inside of the group goes on across.
  void limit_reductions(size_t most);
  size_t count_in(Unit::Stage stage) const;
  /// The unit with the oldest reduction in that stage; there is one.
  size_t oldest_in(Unit::Stage stage) const;
  void finish_reductions(Unit::Stage stage, size_t left);
  bool hands_over_early() const;
  void hand_over_if_ready(size_t index);
  void hand_over(size_t index);
  /// Whether gradients that leave are told: while they are handed over.
  void tell_leaving();
  /// Frees the gradients of units whose update beside has ended.
  void free_updated();

  std::vector<Unit*> units_;                        ///< in forward order
  std::vector<std::vector<size_t>> parts_of_unit_;  ///< places in updated()
  std::vector<size_t> unit_of_layer_;
  std::vector<char> part_is_beside_;                         ///< by place in updated()
  std::vector<std::optional<at::ScalarType>> types_before_;  ///< by layer: ParamLayer::own_type
  Completed completed_;
  Leaving leaving_;
  struct Updating {
    size_t unit = 0;
    int64_t job = 0;  ///< of the context's worker: the last one that uses the unit's gradients
  };
  std::deque<Updating> updating_;
  Pass pass_ = Pass::None;
  bool last_micro_batch_ = true, last_pass_ = true;
  bool forward_is_under_way_ = false;  ///< a unit has ended its forward pass of this micro-batch
  std::shared_ptr<profile::Timeline> timeline_;
};

}  // namespace moonshard::sharding
