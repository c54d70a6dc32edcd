// One secret for all trainers of a test, so that their private steps can be compared.
#pragma once

#include <memory>

#include "runtime/train/trainer.h"

namespace moonshard {

class SharedSecret : public privacy::StepHooks {
 public:
  void change_noise(optim::NoiseSpec& noise, const privacy::NoisePlace&) override {
    if (noise.std != 0) noise.secret = secret_;
  }

 private:
  std::shared_ptr<const kernels::ChaChaKey> secret_ =
      std::make_shared<kernels::ChaChaKey>(kernels::ChaChaKey{{1, 2, 3, 4, 5, 6, 7, 8}});
};

}  // namespace moonshard
