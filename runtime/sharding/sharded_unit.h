// An fsdp unit: its part on this rank, and the whole row while gathered. When to gather is decided
// in sharded_model.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <c10/core/Event.h>

#include "runtime/sharding/parallel.h"
#include "runtime/sharding/unit.h"
#include "runtime/sharding/wrap_policy.h"

namespace moonshard::sharding {

class ShardedUnit : public Unit {
 public:
  /// Which parameters stay whole between steps: all (zero2_replicated), or frozen ones.
  struct Kept {
    bool all = false, frozen = false;
  };
  ShardedUnit(const UnitPlan& plan, Kept kept, ShardingContext& context);

  /// The root unit: layers of no other unit.
  bool is_root() const { return is_root_; }
  bool is_whole() const { return state().storage == Storage::Whole; }

  /// Takes this rank's parts of the model's values, or initialises them where the model has none
  /// yet; appends what the optimizer will update.
  void place(models::Model& model, std::vector<std::unique_ptr<models::Parameter>>& updated,
             std::vector<int64_t>& first_elements);

  void start_gather();
  void finish_gather();
  void release();
  /// The same between two uses in one pass.
  void step_aside();
  /// start_gather, unless gathered or gathering.
  void gather_ahead();
  /// finish_gather, if one is in progress.
  void end_gather();
  /// Between micro-batches, in any state: does nothing unless gathered.
  void release_idle();

  void drop_gradients() override;
  /// This rank's part of its frozen parameters; undefined where there are none.
  const at::Tensor& frozen_part() const { return frozen_.shard; }
  /// Whether it has some that stay whole between steps, and whether those are up to date.
  bool keeps_frozen() const { return frozen_.stays && !frozen_.layout.empty(); }
  bool frozen_is_current() const { return frozen_.is_current; }

  // ---- for saving, comparing, reading: all ranks together ------------------------------------
  /// Parameters whole in the dtype they are kept in.
  void expose_parameters();
  /// The reverse: copies this rank's parts back from the whole.
  void take_back_parameters();
  /// The sums whole, as the parameters' grad.
  void expose_gradients();
  /// Appends this rank's parts; with `exposed` they are first taken from the whole, which stays.
  void list_kept(std::vector<KeptPart>& parts, bool exposed) const;
  /// Whole rows are out of date: parts were written to, while the parameters were `exposed` or not.
  void parts_changed(bool exposed);

 protected:
  const FlatLayout& trained_layout() const override { return trained_.layout; }
  Reduction send(const at::Tensor& row) override;
  void reduce_alone(bool last, bool keeps_rows) override;
  void sums_leave(at::Tensor& sums) override;
  void sums_began() override;

 private:
  struct Flat {
    FlatLayout layout;
    at::ScalarType type = at::kFloat;  ///< of the part
    at::Tensor shard, whole;
    at::Tensor low;  ///< where defined, shard has the high halves of float32 master weights
    comm::Pending gather;
    std::shared_ptr<c10::Event> copied;       ///< with offload and one rank
    std::vector<models::Parameter*> updated;  ///< by piece; trained ones only
    bool stays = false;                       ///< whole, between steps
    bool is_current = false;  ///< the whole row that stayed has the parts' values: frozen ones only
  };

  /// Whether the part is in the dtype and on the device of the computation.
  bool is_read_as_it_lies(const Flat& flat) const;
  bool is_alias(const Flat& flat) const;
  void release_by(Event event);
  /// Writes this rank's elements of a piece.
  static void set_own_values(const Flat& flat, const Piece& piece, const at::Tensor& values);
  void place_flat(Flat& flat, models::Model& model);
  void gather_flat(Flat& flat);
  void set_values(const Flat& flat, const at::Tensor& row);
  void forget_values(Flat& flat);
  int64_t whole_bytes(const Flat& flat) const;
  /// Of all that counts as gathered.
  int64_t whole_bytes() const;

  bool is_root_;
  bool counts_frozen_;  ///< as gathered; else they are part of what is kept
  Flat trained_, frozen_;
};

}  // namespace moonshard::sharding
