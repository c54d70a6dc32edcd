// What Lua holds of the runtime's larger objects.
#pragma once

#include <memory>

#include "runtime/models/model.h"
#include "runtime/train/trainer.h"

namespace moonshard::bindings {

struct ModelHandle {
  std::shared_ptr<models::Model> model;
};

struct DataHandle {
  int64_t batch_size = 0, seq_length = 0;
  std::shared_ptr<data::SyntheticData> source;  ///< null until a model gives it its shapes
};

struct TrainerHandle {
  std::shared_ptr<train::Trainer> trainer;  ///< null after close()
  std::shared_ptr<models::Model> model;
};

}  // namespace moonshard::bindings
