// What a step does with units: weights are gathered and cast, gradients reduced, added up, updated
// or sent to the host. Written into the step's program between its passes (step_time.cpp), by the
// same limits as in sharding/wrapped_model.cpp. Torch-free.
#pragma once

#include <deque>
#include <vector>

#include "runtime/plan/step_program.h"
#include "runtime/plan/step_time.h"
#include "runtime/sharding/unit_order.h"

namespace moonshard::plan {

class UnitProgram {
 public:
  UnitProgram(const PlannedModel& model, const EngineWays& ways,
              const sharding::ShardingOptions& sharding, const TimeSituation& situation,
              const MachineProfile& machine, StepProgram& program);

  /// Ranks hold parts of units, which are gathered; else each has all of the model.
  bool has_parts() const { return parts_; }
  int64_t ranks_of_a_copy() const { return parts_ ? holders_ : situation_.ranks; }
  bool root_steps_aside() const {
    return parts_ && order_.steps_aside(units_[0].is_root, units_[0].reshards);
  }
  const std::vector<size_t>& units_of(size_t stretch) const { return of_stretch_[stretch]; }

  void begin_micro_batch(bool first, bool last) {
    first_ = first;
    last_ = last;
  }
  /// Frozen weights that stay gathered are there from now on.
  void forward_ended() { frozen_is_there_ = true; }
  void gather(size_t unit);
  /// The computation waits until it is gathered.
  void use(size_t unit) {
    gather(unit);
    if (ready_[unit] != kNoSlot) program_.wait(ready_[unit]);
  }
  void release(size_t unit) { gathered_[unit] = false; }
  /// All gradients of the unit have been formed.
  void reduce(size_t unit);
  /// Waits until so many reductions are under way at most, and uses the sums that have come.
  void limit(size_t most);
  /// The end of the step: reductions, and updates that are not made unit by unit.
  void finish();

 private:
  struct UnderWay {
    size_t unit;
    bool last;  ///< of the last micro-batch
    Slot done;
  };

  bool needs_gather(size_t unit) const {
    return parts_ && (holders_ > 1 || units_[unit].offloads || !units_[unit].in_compute_type);
  }
  static bool is_offloaded(const PlannedUnit& unit) { return unit.offloads; }
  Slot collective(const char* name, GroupKind group, Lane lane, double bytes, double share,
                  double memory_bytes, Slot after = kNoSlot);
  void use_sums(size_t unit, bool last);
  void finish_across(size_t left);
  double part_of(size_t unit) const {
    return static_cast<double>(parts_ ? units_[unit].trained_shard : units_[unit].trained);
  }
  void update(size_t unit) {
    program_.compute("update", update_time(unit), 1, ways_.is_private ? "update" : nullptr);
  }
  double update_time(size_t unit) const;
  /// Trained layers of a unit, with their ways.
  template <class Visit>
  void each_layer(size_t unit, const Visit& each) const;
  static bool are_rows(const LayerWay& way) { return way.kept == Kept::Rows && way.compact; }
  double rows_of(size_t unit) const;
  double share_of_rows(size_t unit) const;
  void leave(size_t unit);
  void update_all(const char* phase);

  const PlannedModel& model_;
  const EngineWays& ways_;
  const sharding::ShardingOptions& sharding_;
  const TimeSituation& situation_;
  const MachineProfile& machine_;
  StepProgram& program_;
  sharding::UnitOrder order_;
  const std::vector<PlannedUnit>& units_;
  bool parts_, single_ = true, offloads_ = false, first_ = true, last_ = true;
  bool frozen_is_there_ = false;
  int64_t holders_ = 1;
  std::vector<Slot> ready_;
  std::vector<bool> gathered_;
  std::vector<std::vector<size_t>> of_stretch_;
  std::deque<UnderWay> in_flight_, across_;
  std::deque<Slot> beside_;
};

}  // namespace moonshard::plan
