// Random batches of the right shape, a new one each step: what profiling needs, with no data set to
// load. Step n of a seed is the same batch on every device. Such data carries no privacy claim.
#pragma once

#include "runtime/core/batch.h"
#include "runtime/models/model_options.h"

namespace moonshard::data {

class SyntheticData {
 public:
  /// Shapes come from the model's resolved options; images do not use seq_length.
  SyntheticData(const models::ModelOptions& model, int64_t batch_size, int64_t seq_length);
  Batch next();

 private:
  models::ModelOptions model_;
  int64_t batch_size_, seq_length_;
  uint64_t step_ = 0;
};

}  // namespace moonshard::data
