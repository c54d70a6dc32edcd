// How a model's parameters, gradients and optimizer state lie over the ranks, as the training step
// sees it. The step calls these in order; without wrapper they do nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/models/model.h"
#include "runtime/profile/timeline.h"
#include "runtime/sharding/sharding_context.h"

namespace moonshard::sharding {

/// A part of one of the model's parameters, trained or frozen, that this rank keeps.
struct KeptPart {
  const models::Parameter* parameter = nullptr;  ///< the model's own
  int64_t first = 0;                             ///< where in the flattened parameter it begins
  at::Tensor value;                              ///< [count]; writing to it changes the part
};

/// Told of parts, by their places in Parallel::updated(), whose gradients are final and whose
/// values nothing in the step needs any more.
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
  /// From here to the next call gradients are handed over unit by unit: in the last micro-batch as
  /// soon as they are whole, the rest in finish_gradients. They are dropped when the call returns.
  /// On any thread of the backward pass. An empty function ends it. What cannot be told apart early
  /// is not handed over at all: the step then finds it in updated().
  virtual void on_complete(Completed) {}
  /// Elements in the largest unit that is handed over.
  virtual int64_t most_completed() const { return 0; }
  /// `last` of the step: gradients that were held back travel then.
  virtual void begin_micro_batch(bool /*last*/) {}
  /// `last` of this micro-batch's backward passes.
  virtual void begin_backward(bool /*last*/) {}
  /// Between the first backward and what the engine makes of it.
  virtual void end_backward() {}
  virtual void end_micro_batch() {}
  /// Waits until updated() has its gradients, summed over ranks.
  virtual void finish_gradients() {}
  /// The optimizer has changed updated().
  virtual void end_step() {}
  /// The step has failed: parameters as after the last whole step, gradients gone.
  virtual void abandon() {}

  /// Parameters whole in the model, as long as nothing trains; all ranks together. Changes to them
  /// are taken over by the next step.
  virtual void expose_parameters() {}
  /// The sums of finish_gradients whole in the model, as its parameters' grad.
  virtual void expose_gradients() {}

  /// What this rank keeps of every parameter: all of it where ranks have whole copies. Between
  /// steps, all ranks together; good until the next step.
  virtual std::vector<KeptPart> kept_parts() = 0;
  /// The kept parts were written to: whatever was made of them is out of date.
  virtual void kept_parts_changed() {}

  /// Spans of units' computation and of collectives go there; null ends it.
  virtual void record_into(std::shared_ptr<profile::Timeline>) {}
  virtual ShardingMemory memory() const { return {}; }
  virtual std::vector<std::string> unit_names() const { return {}; }
  virtual std::vector<comm::Traffic> traffic() const { return {}; }
  virtual const char* transport() const { return "single"; }
};

/// Every parameter of a model that is whole on this rank.
std::vector<KeptPart> whole_parts(const models::Model& model);

/// Spreads the model over the world's ranks. The model may be deferred; each rank then draws only
/// its own part. It must outlive the result, and is whole again only through expose_parameters.
std::unique_ptr<Parallel> make_parallel(models::Model& model, const ShardingOptions& options,
                                        comm::World& world);

}  // namespace moonshard::sharding
