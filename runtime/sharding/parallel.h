// How a model's parameters, gradients and optimizer state are distributed over ranks, as the
// training step sees it. The step calls these in order; without a wrapper they do nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/comm/world.h"
#include "runtime/models/model.h"
#include "runtime/profile/timeline.h"
#include "runtime/sharding/unit.h"

namespace moonshard::sharding {

/// A part of one of the model's parameters, trained or frozen, that this rank keeps.
struct KeptPart {
  const models::Parameter* parameter = nullptr;  ///< the model's own
  int64_t first = 0;                             ///< where in the flattened parameter it begins
  at::Tensor value;                              ///< [count]; writing to it changes the part
  at::Tensor low =
      {};  ///< where defined, value is the high half (kernels/split_float/split_float.h)
};

/// Called with parts (indices into Parallel::updated()) whose gradients are final and whose values
/// the step no longer needs.
using Completed = std::function<void(const std::string& unit, const std::vector<size_t>& parts)>;

class Parallel {
 public:
  virtual ~Parallel() = default;

  /// What noise is added to and the optimizer updates on this rank: parts of the trained
  /// parameters, under their names and indices, or the model's own parameters.
  virtual const std::vector<std::unique_ptr<models::Parameter>>& updated() const = 0;
  /// Of updated()[i]: where in the flattened parameter it begins.
  virtual int64_t first_element(size_t) const { return 0; }

  virtual void begin_step() {}
  /// Until the next call, gradients are passed to the callback unit by unit: in the last
  /// micro-batch as soon as they are complete, the rest in finish_gradients. They are freed when
  /// the callback returns. May run on any thread of the backward pass. An empty function ends this.
  /// Gradients that cannot be completed early are not passed on: the step then finds them in
  /// updated(). An empty function also forgets what work_beside has not begun. At the latest before
  /// the last backward pass.
  virtual void on_complete(Completed) {}
  /// Until the next call, and while there is a callback of on_complete, gradients that are final
  /// are passed to this one before they are copied to the host. Only with offload, and not where a
  /// sum over micro-batches is on the host already.
  virtual void on_leaving(Leaving) {}
  /// Whether some parts are updated beside the step.
  virtual bool works_beside() const { return false; }
  /// For the callback of on_complete: whether it should give the work on this part (of updated())
  /// to work_beside, which then runs on another thread, one after the other, when the gradients
  /// have arrived in host memory. They are freed after it. The same for all parts of a callback.
  virtual bool is_beside(size_t /*part*/) const { return false; }
  virtual void work_beside(std::function<void()> work) { work(); }
  /// Until all of that is done; throws what it has thrown.
  virtual void wait_for_work() {}
  /// Elements in the largest unit that is passed to the callback.
  virtual int64_t most_completed() const { return 0; }
  /// `last` of the step: gradients held back until then are reduced.
  virtual void begin_micro_batch(bool /*last*/) {}
  /// `last` of this micro-batch's backward passes.
  virtual void begin_backward(bool /*last*/) {}
  /// Between the first backward pass and the engine's use of its results.
  virtual void end_backward() {}
  virtual void end_micro_batch() {}
  /// Waits until updated() has its gradients, summed over ranks.
  virtual void finish_gradients() {}
  /// The optimizer has changed updated().
  virtual void end_step() {}
  /// The step has failed: restores the parameters of the last complete step, drops gradients.
  virtual void abandon() {}

  /// Whether values that stay whole from step to step are those of the parts: a graph of a step
  /// does not gather them again.
  virtual bool is_current() const { return true; }
  /// While it is so, collectives are recorded into a graph, not run.
  virtual void set_captured(bool) {}
  /// They run now, all of a step's.
  virtual void watch_replay() {}

  /// Gathers all parameters into the model while no step runs; all ranks together. The next step
  /// takes over changes to them.
  virtual void expose_parameters() {}
  /// Gathers the sums of finish_gradients into the model, as its parameters' grad.
  virtual void expose_gradients() {}

  /// What this rank keeps of every parameter: all of it where ranks hold full copies. Between
  /// steps, all ranks together; valid until the next step.
  virtual std::vector<KeptPart> kept_parts() = 0;
  /// The memory of those parts, for profiles; also while a gather runs. What updated() has is not
  /// in it.
  virtual std::vector<at::Tensor> kept_frozen() const { return {}; }
  /// The kept parts were written to: invalidates everything derived from them.
  virtual void kept_parts_changed() {}

  /// Records spans of units' computation and of collectives there; null ends it.
  virtual void record_into(std::shared_ptr<profile::Timeline>) {}
  virtual ShardingMemory memory() const { return {}; }
  virtual std::vector<std::string> unit_names() const { return {}; }
  virtual std::vector<comm::Traffic> traffic() const { return {}; }
  /// How many ranks update the same parts, of those that hold parts.
  virtual int64_t copies_of_parts() const { return 1; }
  virtual const char* transport() const { return "single"; }
};

/// The parts of a rank that keeps every parameter whole.
std::vector<KeptPart> whole_parts(const models::Model& model);

/// Wraps the model over the world's ranks. The model may be deferred; each rank then initialises
/// only its own part. It must outlive the result, and is whole again only through
/// expose_parameters.
std::unique_ptr<Parallel> make_parallel(models::Model& model, const ShardingOptions& options,
                                        comm::World& world);
/// The two kinds without shards: one rank without a wrapper, and ddp.
std::unique_ptr<Parallel> make_unwrapped(models::Model& model);
std::unique_ptr<Parallel> make_replicated(models::Model& model, const ShardingOptions& options,
                                          std::shared_ptr<comm::Communicator> group);

/// For the verbs verify and audit: the world that the options name. Throws UsageError where ranks
/// are simulated, or several have no wrapper; `where` opens the message.
std::shared_ptr<comm::World> real_world(const char* where, const ShardingOptions& options);
/// Adds the wrapper to their report.
void add_wrapper(Json& report, const ShardingOptions& options);

}  // namespace moonshard::sharding
