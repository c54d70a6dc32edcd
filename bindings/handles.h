// Lua's handles of the runtime's larger objects.
#pragma once

#include <memory>

#include "runtime/checkpoint/durable.h"
#include "runtime/comm/world.h"
#include "runtime/data/dataset_source.h"
#include "runtime/experiment/experiment_options.h"
#include "runtime/models/model.h"
#include "runtime/sharding/sharding_options.h"
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

/// The training curve that Trainer:fit keeps: a row per step, in a file before the step's
/// checkpoint is saved, so that a run that goes on from there has all of them.
struct CurveOptions {
  bool on = false, norms = false;
  std::string file;  ///< empty: none, as on all ranks but the first
};

struct TrainerHandle {
  std::shared_ptr<train::Trainer> trainer;  ///< null after close()
  std::shared_ptr<models::Model> model;
  std::shared_ptr<checkpoint::Saver> saver = {};         ///< from the first save
  std::shared_ptr<checkpoint::DurableRun> durable = {};  ///< from durable()
  std::string durable_folder = {};
  CurveOptions curve = {};
  /// What its steps are like, for advice where memory runs out.
  std::shared_ptr<const experiment::ExperimentOptions> options = {};
};

// Opens the data source that a trainer's option `data` describes.

/// This rank's source. `mode`: the engine; without privacy a draw without samples is skipped.
std::unique_ptr<data::Source> open_source(const DataHandle& handle, const models::Model& model,
                                          comm::World& world, const train::StepOptions& step,
                                          bool secure, const std::string& mode);

/// Reads the tables of ms.fsdp and ms.ddp back for ms.trainer.
sharding::ShardingOptions read_sharding_options(const Json& table);

}  // namespace moonshard::bindings
