// An experiment: one flat table of named options in, one result record out. The same schema feeds
// command-line flags, Lua tables, result files, --help and completion.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "runtime/models/model_options.h"
#include "runtime/optim/optimizer.h"
#include "runtime/privacy/clip_engine.h"
#include "runtime/train/trainer.h"

namespace moonshard::train {

struct ExperimentOptions : models::ModelOptions,
                           privacy::ClipOptions,
                           optim::OptimizerOptions,
                           StepOptions,
                           sharding::ShardingOptions,
                           PrivacyOptions {
  int64_t batch_size = 0;
  int64_t seq_length = 0;
  int64_t iters = 3;
  int64_t warmup = 1;
  int64_t threads = 0;
  int64_t memory_limit_mb = 0;
  int64_t nproc = 1;
  std::string profile = "phases";
  std::string data_folder;
  std::string data_file;
  std::string tokenizer = "bytes";
  std::string packing = "packed";
  std::string invalid_utf8 = "error";
  std::string sampler = "fixed";
  int64_t prefetch = 2;
  bool memory_history = false;
};

const OptionSchema& experiment_schema();

/// Checks and fills in: every size is the preset's or the user's, the device is named.
ExperimentOptions resolve_experiment(const ExperimentOptions& options);

/// The same for a table: unknown keys and bad values raise UsageError. Returns effective options.
Json resolve_experiment_table(const Json& table);

using StepObserver = std::function<void(const StepReport& report, bool is_warmup)>;

/// Runs warm-up and measured steps; returns the record of points/<id>/result.json. Running out of
/// memory is an outcome, not an error: status "oom" with the phase, bytes asked for and bytes free.
/// Other errors are thrown. Traces and snapshots, where the options ask for them, go into `folder`.
Json run_experiment(const ExperimentOptions& options, const StepObserver& observer = {},
                    const std::filesystem::path& folder = ".");

/// The seed documents' result file, made from a record: their keys exactly.
Json seed_result(const Json& record);

}  // namespace moonshard::train
