// Units that are gathered, through a step: sharding/unit_order.h says when. Torch-free.
#pragma once

#include <vector>

#include "runtime/plan/memory_ledger.h"
#include "runtime/sharding/unit_order.h"

namespace moonshard::plan {

class GatherWalk {
 public:
  GatherWalk(const PlannedModel& model, const sharding::ShardingOptions& sharding,
             const MemorySituation& situation, MemoryLedger& ledger)
      : model_(model),
        sharding_(sharding),
        ledger_(ledger),
        order_(sharding),
        units_(model.units(sharding, situation.ranks)),
        parts_(sharding.parallel == "fsdp"),
        gathered_(units_.size(), false),
        is_new_(units_.size(), true),
        is_over_(units_.size(), false) {
    of_stretch_.resize(model.num_stretches());
    for (size_t u = 0; u < units_.size(); ++u)
      for (const size_t stretch : units_[u].stretches) of_stretch_[stretch].push_back(u);
  }

  const std::vector<size_t>& units_of(size_t stretch) const { return of_stretch_[stretch]; }

  void begin_forward() { is_new_.assign(units_.size(), true); }
  void begin_backward() {
    begin_forward();
    for (size_t u = 0; u < units_.size(); ++u)
      is_over_[u] = units_[u].backward_ends_at == kNoStretch;
  }
  void forward(size_t stretch) {
    use(stretch, [this](size_t u) {
      order_.when_forward_begins(u, units_.size(), root_steps_aside(),
                                 [this](size_t next) { gather(next); });
    });
    if (stretch == 1 && root_steps_aside()) release(0);
  }
  void forward_ended(size_t stretch) {
    for (const size_t u : of_stretch_[stretch])
      if (parts_ && stretch == units_[u].stretches.back() &&
          order_.released_after_forward(u, units_.size(), units_[u].is_root, units_[u].reshards))
        release(u);
  }
  void backward(size_t stretch) {
    use(stretch, [this](size_t u) {
      order_.when_backward_begins(
          u, units_.size(), [this](size_t next) { return is_over_[next]; },
          [this](size_t next) { gather(next); });
    });
    if (stretch > 0 && stretch + 2 == of_stretch_.size() && root_steps_aside()) release(0);
  }
  void backward_ended(size_t stretch, bool last_pass) {
    for (const size_t u : of_stretch_[stretch]) {
      if (!parts_ || stretch != units_[u].backward_ends_at) continue;
      is_over_[u] = true;
      order_.when_backward_ends(
          u, units_.size(), [this](size_t next) { return is_over_[next]; },
          [this](size_t next) { gather(next); });
      if (order_.released_after_backward(units_[u].is_root, units_[u].reshards, last_pass))
        release(u);
    }
  }
  void end_micro_batch() {
    for (size_t u = 0; u < units_.size(); ++u)
      if (!order_.keeps_whole()) release(u);
  }

 private:
  bool root_steps_aside() const {
    return parts_ && order_.steps_aside(units_[0].is_root, units_[0].reshards);
  }

  template <class Began>
  void use(size_t stretch, const Began& began) {
    for (const size_t u : of_stretch_[stretch]) {
      if (!parts_) continue;
      gather(u);
      if (is_new_[u]) began(u);
      is_new_[u] = false;
    }
  }
  // A rank that holds everything reads its part as it lies, and so does one whose row stays.
  double whole_bytes(size_t unit) const {
    const PlannedUnit& u = units_[unit];
    const bool in_place = !u.offloads && u.in_compute_type;
    if (!parts_ || (in_place && (u.ranks == 1 || order_.keeps_whole()))) return 0;
    const auto bytes = static_cast<double>((sharding_.keep_frozen ? u.whole_trained() : u.whole()) *
                                           u.compute_bytes);
    return model_.held(bytes);
  }
  void gather(size_t unit) {
    if (gathered_[unit]) return;
    gathered_[unit] = true;
    ledger_.add(Holder::Gathered, whole_bytes(unit));
  }
  void release(size_t unit) {
    if (!gathered_[unit]) return;
    gathered_[unit] = false;
    ledger_.free(Holder::Gathered, whole_bytes(unit));
  }

  const PlannedModel& model_;
  const sharding::ShardingOptions& sharding_;
  MemoryLedger& ledger_;
  sharding::UnitOrder order_;
  const std::vector<PlannedUnit>& units_;
  bool parts_;
  std::vector<bool> gathered_, is_new_;
  std::vector<bool> is_over_;  ///< this backward pass needs it no more
  std::vector<std::vector<size_t>> of_stretch_;
};

}  // namespace moonshard::plan
