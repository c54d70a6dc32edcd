// The options of an experiment: all options of model, engine, optimizer, wrapper and
// privacy budget, and what is measured. One schema feeds command-line flags, Lua tables, result
// files, --help, completion and the viewer. Torch-free.
#pragma once

#include <string>

#include "runtime/models/model_options.h"
#include "runtime/optim/optimizer_options.h"
#include "runtime/privacy/clip_options.h"
#include "runtime/sharding/sharding_options.h"
#include "runtime/train/step_options.h"

namespace moonshard::experiment {

struct ExperimentOptions : models::ModelOptions,
                           privacy::ClipOptions,
                           optim::OptimizerOptions,
                           train::StepOptions,
                           sharding::ShardingOptions,
                           privacy::PrivacyOptions {
  int64_t batch_size = 0;
  int64_t seq_length = 0;
  int64_t iters = 3;
  int64_t warmup = 1;
  int64_t threads = 0;
  int64_t memory_limit_mb = 0;
  int64_t nproc = 1;
  std::string profile = "phases";
  int64_t watch_steps = 1;
  std::string kernels = "auto";
  bool whole_first = false;
  std::string data_folder;
  std::string data_file;
  std::string tokenizer = "bytes";
  std::string packing = "packed";
  std::string invalid_utf8 = "error";
  std::string sampler = "fixed";
  int64_t prefetch = 2;
  bool pad_batches = false;
  bool memory_history = false;
  bool check_memory = true;
};

const OptionSchema& experiment_schema();

}  // namespace moonshard::experiment
