// What one rank holds between steps, from options alone: exact to the byte for what the wrappers
// keep, padding included. Built from the same units and layouts that training uses, on device
// "meta".
#pragma once

#include <cstdint>

#include "runtime/models/model_options.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::plan {

struct RankMemory {
  int64_t data = 0;        ///< one batch
  int64_t parameters = 0;  ///< own parts, or all
  int64_t gradients = 0;   ///< sums of a step; held until the optimizer has used them
  /// The same in a private step of one micro-batch: each unit's gradients are used as soon as they
  /// are complete, so that the largest unit decides.
  int64_t private_gradients = 0;
  int64_t optimizer = 0;
  int64_t gathered = 0;  ///< at most, while layers run (fsdp)

  // The same job in PyTorch: the model exists whole before it is wrapped, gradients stay until the
  // next step, and DistributedDataParallel keeps its buckets beside them.
  int64_t pytorch_after_model = 0;   ///< data and the whole model
  int64_t pytorch_after_warmup = 0;  ///< data, parameters, gradients, buckets, optimizer state
};

/// `states_per_parameter`: numbers that the optimizer keeps for each (sgd 0, momentum 1, adam 2),
/// of `state_bytes` bytes; 0: as many as a weight has.
RankMemory rank_memory(const models::ModelOptions& model, const sharding::ShardingOptions& sharding,
                       int world, int states_per_parameter, int64_t batch_size, int64_t seq_length,
                       int64_t state_bytes = 0);

}  // namespace moonshard::plan
