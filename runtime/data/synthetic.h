// Random batches of the right shape, a new one each step: what profiling needs, with no data set to
// load. Step n of a seed is the same batch on every device. Ranks take turns: N ranks draw in one
// step what one process draws in N. Such data carries no privacy claim.
#pragma once

#include "runtime/data/source.h"
#include "runtime/models/model_options.h"

namespace moonshard::data {

class SyntheticData : public Source {
 public:
  /// Shapes come from the model's resolved options; images do not use seq_length.
  SyntheticData(const models::ModelOptions& model, int64_t batch_size, int64_t seq_length,
                int rank = 0, int world = 1);
  Batch next() override;
  int64_t position() const override { return static_cast<int64_t>(position_); }
  void go_to(int64_t position) override { position_ = static_cast<uint64_t>(position); }
  Sampling sampling() const override {
    return {"fixed", 0, 0, 0, "synthetic data: there is nobody to protect, and no epsilon"};
  }

 private:
  models::ModelOptions model_;
  int64_t batch_size_, seq_length_;
  uint64_t rank_, world_;
  uint64_t position_ = 0;
};

}  // namespace moonshard::data
