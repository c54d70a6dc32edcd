// When units of a sharded model are gathered, released and waited for: the decisions alone.
// sharded_model.cpp and wrapped_model.cpp carry them out; runtime/plan asks the same functions when
// it simulates a step, so that a plan cannot follow another order than the training. Needs no
// torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/sharding/sharding_options.h"

namespace moonshard::sharding {

enum class Strategy {
  Zero2Replicated,  ///< parameters whole, gradients and optimizer state in parts
  Zero2,            ///< parameters whole from forward to backward
  Zero3             ///< parameters whole only while their layers run
};

inline Strategy strategy_of(const ShardingOptions& options) {
  if (options.sharding == "zero2") return Strategy::Zero2;
  return options.sharding == "zero3" ? Strategy::Zero3 : Strategy::Zero2Replicated;
}

/// Units whose gradients may be in reduction: enough to keep a link busy, few enough to bound
/// memory. The oldest is waited for before another's row is allocated.
inline constexpr size_t kReductionsUnderWay = 2;
/// With offload: units whose gradients are on the host, or on their way, and whose update has not
/// ended.
inline constexpr size_t kUpdatesBeside = 3;
/// Without a wrapper: updates per step. Fewer and larger than one per layer, yet the gradients of
/// one update batch stay a small part of the model's.
inline constexpr int64_t kUpdateBatches = 64;

/// Units by their place in the forward pass, from 0.
class UnitOrder {
 public:
  explicit UnitOrder(const ShardingOptions& options)
      : strategy_(strategy_of(options)),
        ahead_(options.limit_all_gathers ? 1 : 2),
        forward_prefetch_(options.forward_prefetch),
        before_backward_(options.backward_prefetch == "pre"),
        after_backward_(options.backward_prefetch == "post") {}

  Strategy strategy() const { return strategy_; }
  /// Gathered copies stay from step to step.
  bool keeps_whole() const { return strategy_ == Strategy::Zero2Replicated; }

  /// Calls gather(unit) for those that are gathered ahead when a unit's forward begins, its
  /// backward begins, and its backward ends. `root_returns`: the first unit steps aside, and is
  /// next behind the last.
  template <class Gather>
  void when_forward_begins(size_t unit, size_t count, bool root_returns,
                           const Gather& gather) const {
    if (!forward_prefetch_) return;
    gather_ahead(unit, count, 1, gather);
    const auto behind = static_cast<int64_t>(count - unit);  // 1: this is the last
    if (root_returns && unit > 0 && behind <= ahead_) gather(0);
  }
  /// `is_over(unit)`: its backward is. Units need not run in their order, and one whose backward is
  /// over may be updated now, and must not be read.
  template <class IsOver, class Gather>
  void when_backward_begins(size_t unit, size_t count, const IsOver& is_over,
                            const Gather& gather) const {
    if (before_backward_) gather_for_backward(unit, count, is_over, gather);
  }
  template <class IsOver, class Gather>
  void when_backward_ends(size_t unit, size_t count, const IsOver& is_over,
                          const Gather& gather) const {
    if (after_backward_) gather_for_backward(unit, count, is_over, gather);
  }

  // `reshards`: UnitSettings::reshard of the unit.
  /// The last unit is the first that backward needs, and so is the root.
  bool released_after_forward(size_t unit, size_t count, bool is_root, bool reshards) const {
    return reshards && !keeps_whole() && !is_root && unit + 1 != count;
  }
  /// `last_pass`: no other backward of this micro-batch follows, which would begin with the root.
  bool released_after_backward(bool is_root, bool reshards, bool last_pass) const {
    return !keeps_whole() && (last_pass || (reshards && !is_root));
  }
  /// From when another unit begins to run until its own layers are next: in forward between
  /// embedding and head, in backward between head and embedding.
  bool steps_aside(bool is_root, bool reshards) const {
    return is_root && reshards && !keeps_whole();
  }

 private:
  template <class IsOver, class Gather>
  void gather_for_backward(size_t from, size_t count, const IsOver& is_over,
                           const Gather& gather) const {
    gather_ahead(from, count, -1, [&](size_t next) {
      if (!is_over(next)) gather(next);
    });
  }
  template <class Gather>
  void gather_ahead(size_t from, size_t count, int64_t direction, const Gather& gather) const {
    for (int64_t i = 1; i <= ahead_; ++i) {
      const int64_t next = static_cast<int64_t>(from) + direction * i;
      if (next < 0 || next >= static_cast<int64_t>(count)) return;
      gather(static_cast<size_t>(next));
    }
  }

  Strategy strategy_;
  int64_t ahead_;
  bool forward_prefetch_, before_backward_, after_backward_;
};

}  // namespace moonshard::sharding
