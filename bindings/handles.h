// Lua's handles of the runtime's larger objects.
#pragma once

#include <memory>

#include "runtime/data/dataset_source.h"
#include "runtime/models/model.h"
#include "runtime/train/trainer.h"

namespace moonshard::bindings {

struct ModelHandle {
  std::shared_ptr<models::Model> model;
};

struct DatasetHandle {
  std::shared_ptr<data::Dataset> dataset;
};

/// Synthetic batches, or a loader's selection from a dataset.
struct DataHandle {
  std::shared_ptr<data::Dataset> dataset;  ///< null for synthetic ones
  data::LoaderOptions loader;
  int64_t batch_size = 0, seq_length = 0;
  std::shared_ptr<data::SyntheticData> source;  ///< null until a model gives it its shapes
};

struct TrainerHandle {
  std::shared_ptr<train::Trainer> trainer;  ///< null after close()
  std::shared_ptr<models::Model> model;
};

}  // namespace moonshard::bindings
