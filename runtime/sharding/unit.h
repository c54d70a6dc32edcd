// Parameters whose gradients are reduced together: a unit of fsdp (sharded_unit.h), a bucket of ddp
// (parallel.cpp). Tracks how far a micro-batch has come through its layers, and holds the gradients
// that are being reduced. wrapped_model.h decides when.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "runtime/comm/communicator.h"
#include "runtime/models/model.h"
#include "runtime/models/parameter.h"
#include "runtime/profile/timeline.h"
#include "runtime/sharding/shard_state.h"
#include "runtime/sharding/unit_policy.h"
#include "runtime/sharding/worker.h"
#include "runtime/sharding/wrap_policy.h"

namespace moonshard::sharding {

// What all units of a model share: the group of ranks, devices and dtypes of values, and the bytes
// that this rank holds.

/// Bytes of one rank, now and at their peak since the last reset.
struct ShardingMemory {
  int64_t parameters = 0;                     ///< kept between steps: own parts, or all of them
  int64_t gradients = 0;                      ///< peak of the sums kept for the optimizer
  int64_t gradients_now = 0;                  ///< held now
  int64_t whole = 0, whole_peak = 0;          ///< gathered parameters
  int64_t in_flight = 0, in_flight_peak = 0;  ///< gradients being reduced
  int64_t whole_units = 0, whole_units_peak = 0;

  void add_whole(int64_t bytes, int64_t units);
  void add_in_flight(int64_t bytes);
  void add_gradients(int64_t bytes);
};

/// With offload: a part's final gradient before it is copied to the host. May change it in place.
using Leaving = std::function<void(const models::Parameter& part, at::Tensor& gradient)>;

/// Of parts in `type` where the computation is in `compute`.
inline bool splits_master_weights(at::ScalarType type, at::ScalarType compute) {
  return type == at::kFloat && compute == at::kBFloat16;
}

struct ShardingContext {
  ShardingContext(models::Model& model, std::shared_ptr<comm::Communicator> ranks);

  std::shared_ptr<comm::Communicator> group;
  /// Ranks with the same parts as this one, whose sums are still to be added; null: there are none.
  std::shared_ptr<comm::Communicator> copies = {};
  c10::Device device;           ///< of the computation
  at::ScalarType type;          ///< of trained parameters, as the model keeps them
  at::ScalarType compute_type;  ///< of the model; units may have another
  at::ScalarType sum_type;      ///< of gradient sums
  ShardingMemory memory;
  int64_t reductions_started = 0;
  /// Some unit is offloaded. Sums and updates in host memory run on a thread of their own (also
  /// where the computation is on the host, so that it can be tested there).
  bool works_beside = false;
  Leaving leaving;  ///< may be empty

  bool single() const { return group->size() == 1; }

  // ---- of offloaded units ----------------------------------------------------------------------
  /// The stream that copies to the device, beside the computation.
  c10::Stream copy_stream();
  /// A copy in pinned memory, asynchronous to the computation.
  at::Tensor brought_home(const at::Tensor& gradient);
  /// sum += a gradient that brought_home has given, once it has arrived.
  void add_at_home(const at::Tensor& sum, const at::Tensor& gradient);
  /// Runs `work` on the thread beside, when all gradients brought home so far have arrived.
  void when_home(std::function<void()> work);
  /// Waits for gradients that are being copied, and for all that runs beside.
  void wait_for_home();
  Worker& worker() { return worker_; }

 private:
  /// A gradient that is being copied, and the end of its copy.
  struct Leaver {
    at::Tensor gradient;
    std::shared_ptr<c10::Event> gone;
  };
  std::shared_ptr<c10::Event> arrival();

  std::optional<c10::Stream> copies_, home_copies_;  ///< to the device, to the host
  std::deque<Leaver> leavers_;
  Worker worker_;
};

/// Of one unit: its settings, as LibTorch says them.
struct UnitTraits {
  UnitTraits(const UnitSettings& settings, const ShardingContext& context);

  at::ScalarType compute_type;  ///< of the gathered parameters
  at::ScalarType reduce_type;   ///< of gradient collectives
  bool reshards;
  bool is_offloaded;  ///< sums and updates are beside the step, in host memory
  bool copies;        ///< offloaded, and the computation is on another device
  c10::Device home;   ///< of the parts
  bool splits;        ///< trained parts are float32 in halves: the computation reads the high one
};

// Several parameters flattened into one row and cut into equal parts, one per rank. A cut may fall
// inside a parameter; the last parts may be padding only. All ranks compute the same layout.

/// A parameter in the row, and the part of it that this rank keeps.
struct Piece {
  models::Parameter* parameter = nullptr;
  int64_t numel = 0;
  int64_t offset = 0;            ///< of the parameter in the row
  int64_t first = 0, count = 0;  ///< this rank's elements of the flattened parameter; may be none
  at::Tensor shape;  ///< without storage: placeholder while the parameter is not gathered
};

struct FlatLayout {
  FlatLayout() = default;
  FlatLayout(const std::vector<models::Parameter*>& parameters, int rank, int world);

  std::vector<Piece> pieces;
  int64_t shard_size = 0;
  int rank = 0, world = 1;

  bool empty() const { return pieces.empty(); }
  int64_t padded() const { return shard_size * world; }
  /// A piece's parameter in its own shape, inside a whole row.
  static at::Tensor whole_view(const at::Tensor& row, const Piece& piece);
  /// This rank's elements of the parameter [count], inside its part of the row.
  at::Tensor own_view(const at::Tensor& part, const Piece& piece) const;
  /// Zeroes the padding.
  void clear_gaps(at::Tensor& row) const;
};

class Unit {
 public:
  Unit(const UnitPlan& plan, Storage storage, ShardingContext& context);
  virtual ~Unit() = default;
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  const std::string& name() const { return name_; }
  const UnitTraits& traits() const { return traits_; }
  const UnitState& state() const { return state_; }
  void move(Event event) { state_ = next_state(state_, event, name_); }

  // ---- how far the micro-batch has come --------------------------------------------------------
  void begin_micro_batch();
  /// Of any backward pass of the micro-batch.
  void begin_backward();
  /// A layer has run forward; `in_graph`: its backward will come. True when all layers have run.
  bool ran_forward(bool in_graph);
  /// The same for a layer that is recomputed in the backward pass (checkpointing).
  void ran_again(bool in_graph) { backward_left_ += in_graph ? 1 : 0; }
  /// True when all layers have run backwards.
  bool ran_backward(bool is_trained);
  void end_backward();
  /// This pass has no more use of its values.
  bool backward_is_over() const { return backward_is_over_; }
  /// One more layer's gradients were added to its parameters. True when it was the last.
  bool gradients_added() { return --gradients_left_ == 0; }
  bool awaits_gradients() const { return gradients_left_ > 0; }
  /// Gradients stay and accumulate: a later micro-batch reduces them.
  void keep_gradients() { gradients_left_ = 0; }

  // ---- its gradients ---------------------------------------------------------------------------
  /// Starts reducing the parameters' gradients and takes them from the parameters. `last` of the
  /// step. With `keeps_rows` and one rank, unsummed rows stay unsummed: the optimizer sums them.
  void start_reduce(bool last, bool keeps_rows);
  /// Where there are copies of the parts, a reduction has two stages: the sum inside of this rank's
  /// group, then the one across the copies.
  enum class Stage : uint8_t { Inside, Across };
  size_t reductions_under_way(Stage stage) const;
  /// Place of the oldest one in that stage among all units' reductions; there is one.
  int64_t oldest_reduction(Stage stage) const;
  /// Waits for the oldest sum inside of the group, and starts the one across.
  void reduce_oldest_across();
  /// The oldest one ends: in its last stage.
  void finish_oldest_reduce();
  /// Waits for all reductions in progress: the sums are then where the optimizer reads them.
  void finish_reduce();
  virtual void drop_gradients();

  // ---- handing them over, once a step ----------------------------------------------------------
  void begin_hand_over() { was_sent_ = was_handed_over_ = false; }
  /// All gradients of the step have arrived, and no layer that runs reads the values.
  bool is_ready() const;
  bool was_handed_over() const { return was_handed_over_; }
  void set_handed_over() { was_handed_over_ = true; }

  // ---- for timelines ---------------------------------------------------------------------------
  void begin_span(profile::Timeline& timeline, const char* what);
  void end_span(profile::Timeline& timeline) const { timeline.end(span_); }

 protected:
  struct Reduction {
    comm::Pending pending;
    at::Tensor row;     ///< of all gradients, as this rank has them
    at::Tensor part;    ///< what comes back: sums over ranks
    int64_t place = 0;  ///< in the order in which all units' reductions were started
    Stage stage = Stage::Inside;
  };

  virtual const FlatLayout& trained_layout() const = 0;
  /// Starts the collective of a row.
  virtual Reduction send(const at::Tensor& row) = 0;
  /// One rank: the gradients are the sums already.
  virtual void reduce_alone(bool last, bool keeps_rows) = 0;
  /// Passes the parts' final sums on to context_.leaving.
  virtual void sums_leave(at::Tensor& /*sums*/) {}
  /// `sums_` has become defined.
  virtual void sums_began() {}
  /// No reduction is in progress any more.
  virtual void sums_ended() {}
  /// The context counts these bytes for this unit until drop_gradients.
  void hold_gradients(int64_t bytes);
  /// Where its sums are: a copy on the way to the host, or the same tensor.
  at::Tensor brought_home(const at::Tensor& gradient);
  /// sum += such a gradient.
  void add_at_home(at::Tensor& sum, const at::Tensor& gradient);

  ShardingContext& context_;
  at::Tensor sums_;  ///< of gradients, as they come back

 private:
  void add_to_sums(const at::Tensor& part);
  /// With the unit's gradients, which are forgotten.
  void fill(const at::Tensor& row);
  /// The row has arrived at the other ranks.
  void row_is_gone(Reduction& reduction);

  std::string name_;
  UnitTraits traits_;
  UnitState state_;
  bool in_backward_;
  int64_t num_layers_, num_trained_layers_ = 0;
  int64_t forward_done_ = 0;   ///< uses of its layers in the forward pass
  int64_t in_graph_ = 0;       ///< those of them whose backward will come
  int64_t backward_left_ = 0;  ///< uses that this backward pass has not reached
  bool backward_is_over_ = false;
  int64_t trained_done_ = 0;    ///< trained layers that it has
  int64_t gradients_left_ = 0;  ///< trained layers whose gradients are still to come
  bool was_sent_ = false;       ///< of the step's last micro-batch
  bool was_handed_over_ = false;
  size_t span_ = 0;
  int64_t held_gradients_ = 0;  ///< bytes that the context counts for this unit
  std::vector<Reduction> reductions_;
};

}  // namespace moonshard::sharding
