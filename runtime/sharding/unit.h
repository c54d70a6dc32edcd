// Parameters that travel together: their part on this rank, their whole while it is needed, their
// gradients on the way to the ranks that keep them. Knows nothing of when; sharded_model.h does.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "runtime/comm/communicator.h"
#include "runtime/models/model.h"
#include "runtime/sharding/flat_layout.h"
#include "runtime/sharding/shard_state.h"

namespace moonshard::sharding {

enum class Strategy {
  Ddp,              ///< everything whole on every rank; gradients are summed
  Zero2Replicated,  ///< parameters whole, gradients and optimizer state in parts
  Zero2,            ///< parameters whole from forward to backward
  Zero3             ///< parameters whole only while their layers run
};

/// Bytes of one rank, now and at their peak since the last reset.
struct ShardingMemory {
  int64_t parameters = 0;                     ///< kept between steps: own parts, or all of them
  int64_t gradients = 0;                      ///< peak of the sums kept for the optimizer
  int64_t gradients_now = 0;                  ///< what of them is there
  int64_t whole = 0, whole_peak = 0;          ///< gathered parameters
  int64_t in_flight = 0, in_flight_peak = 0;  ///< gradients on their way
  int64_t whole_units = 0, whole_units_peak = 0;

  void add_whole(int64_t bytes, int64_t units);
  void add_in_flight(int64_t bytes);
  void add_gradients(int64_t bytes);
};

/// A part of one of the model's parameters, trained or frozen, that this rank keeps.
struct KeptPart {
  const models::Parameter* parameter = nullptr;  ///< the model's own
  int64_t first = 0;                             ///< where in the flattened parameter it begins
  at::Tensor value;                              ///< [count]; writing to it changes the part
};

/// What all units of a model share.
struct ShardingContext {
  Strategy strategy = Strategy::Zero3;
  std::shared_ptr<comm::Communicator> group;
  c10::Device device = c10::kCPU;    ///< of the computation
  c10::Device home = c10::kCPU;      ///< of the parts: the host with offload
  at::ScalarType type = at::kFloat;  ///< of the parts
  at::ScalarType compute_type = at::kFloat;
  at::ScalarType sum_type = at::kFloat;     ///< of gradient sums
  at::ScalarType reduce_type = at::kFloat;  ///< in which gradients travel
  ShardingMemory memory;

  bool single() const { return group->size() == 1; }
  bool offloads() const { return home != device; }
  /// With offload: the stream that copies between host and device, beside the computation.
  c10::Stream copy_stream();
  /// With offload: waits until gradients that were brought home are there.
  void wait_for_copies();

 private:
  std::optional<c10::Stream> copies_;
};

class Unit {
 public:
  Unit(std::string name, std::vector<const models::ParamLayer*> layers,
       const std::vector<models::Parameter*>& parameters, ShardingContext& context);

  const std::string& name() const { return name_; }
  const std::vector<const models::ParamLayer*>& layers() const { return layers_; }
  const UnitState& state() const { return state_; }
  void move(Event event) { state_ = next_state(state_, event, name_); }

  /// Takes this rank's parts of the model's numbers, or draws them where the model has none yet;
  /// appends what the optimizer will update.
  void place(models::Model& model, std::vector<std::unique_ptr<models::Parameter>>& updated,
             std::vector<int64_t>& first_elements);

  void start_gather();
  void finish_gather();
  void release();

  /// Sends the parameters' gradients on their way and takes them from the parameters. With
  /// `keeps_rows` and one rank, what is not summed up yet stays so: the optimizer does it.
  void start_reduce(bool keeps_rows = false);
  /// Waits for all that are on their way and adds them to this rank's sums.
  void finish_reduce();
  size_t reductions_under_way() const { return reductions_.size(); }
  void finish_oldest_reduce();
  void drop_gradients();

  // ---- for saving, comparing, reading: all ranks together ------------------------------------
  /// Parameters whole in the format they are kept in.
  void expose_parameters();
  /// The other way: own parts are taken from the whole again.
  void take_back_parameters();
  /// The sums whole, as the parameters' grad.
  void expose_gradients();
  /// Appends this rank's parts; with `exposed` they are first taken from the whole, which stays.
  void list_kept(std::vector<KeptPart>& parts, bool exposed) const;
  /// The whole is out of date: own parts were written to.
  void forget_exposed();

  /// Uses of this unit's layers, as the pass goes on (see sharded_model.cpp).
  int64_t forward_uses = 0, graph_uses = 0, backward_pending = 0, gradients_pending = 0;
  int64_t num_trained_layers = 0, trained_seen = 0;
  bool is_root = false;
  bool gradients_sent = false;  ///< of the step's last micro-batch
  bool is_complete = false;     ///< its gradients were handed over in this step
  size_t span = 0;              ///< of the timeline, while it is recorded

 private:
  struct Flat {
    FlatLayout layout;
    at::Tensor shard, whole;
    comm::Pending gather;
    std::shared_ptr<c10::Event> copied;       ///< with offload and one rank
    std::vector<models::Parameter*> updated;  ///< by piece; trained ones only
  };
  struct Reduction {
    comm::Pending pending;
    at::Tensor part, row;
  };

  bool is_alias(const Flat& flat) const;
  void place_flat(Flat& flat, models::Model& model);
  void gather_flat(Flat& flat);
  void set_values(const Flat& flat, const at::Tensor& row);
  void forget_values(Flat& flat);
  void reduce_in_place(bool keeps_rows);
  void hold_gradients(int64_t bytes);
  void add_to_sums(const at::Tensor& part);
  at::Tensor brought_home(const at::Tensor& gradient) const;
  int64_t whole_bytes() const;

  std::string name_;
  std::vector<const models::ParamLayer*> layers_;
  ShardingContext& context_;
  UnitState state_;
  Flat trained_, frozen_;
  at::Tensor sums_;             ///< gradients: own part, or with ddp all of them
  int64_t held_gradients_ = 0;  ///< bytes that the context counts for this unit
  std::vector<Reduction> reductions_;
};

}  // namespace moonshard::sharding
