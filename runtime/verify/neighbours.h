// What an epsilon rests on, looked at directly: a sample more or less moves the clipped sum, before
// noise and division, by at most C. Every sample of a batch is taken away once, extreme ones
// included, and single samples are compared with an empty batch; over all reduce_dtypes of a
// wrapper. Adaptive clipping's count must move by at most one half.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/train/trainer.h"
#include "runtime/verify/case_parts.h"
#include "runtime/verify/cases.h"
#include "runtime/verify/verify.h"

namespace moonshard::verify {

class Neighbours : private CaseParts {
 public:
  Neighbours(const VerifyOptions& options, const Subject& subject, const Variant& variant,
             const Format& format, std::shared_ptr<comm::World> world);

  /// One cell for each reduce_dtype; its error is by how much the bound was exceeded. Where the
  /// trainer says that it makes no claim because of its reduce_dtype, nothing can be exceeded.
  std::vector<Cell> run(const std::string& engine);

 private:
  /// What a step on some samples released, but for its noise.
  struct Released {
    at::Tensor sum;    ///< over all parameters, flat, double
    double count = 0;  ///< adaptive clipping: half the samples within the bound less half the rest
  };
  Released release(train::Trainer& trainer, const std::vector<int64_t>& samples) const;
  void compare(const std::string& engine, const std::string& reduce_dtype, Worst& worst) const;

  std::shared_ptr<models::Model> model_;
  std::vector<at::Tensor> start_;
  Batch batch_;
  double bound_ = 0;  ///< what a sample may move the sum by
};

}  // namespace moonshard::verify
