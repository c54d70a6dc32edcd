// A stack of Linear layers of one width, without activations: the toy of the FSDP tutorial, big
// enough to fill memory with parameters alone. Task: regress a vector.
#pragma once

#include "runtime/models/model.h"

namespace moonshard::models {

class LinearStack : public Model {
 public:
  explicit LinearStack(const ModelOptions& options);
  at::Tensor forward(const Batch& batch) override;
  at::Tensor losses(const Batch& batch) override;

 private:
  std::vector<ParamLayer*> stack_;
};

}  // namespace moonshard::models
