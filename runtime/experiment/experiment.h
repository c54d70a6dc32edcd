// An experiment: one flat table of named options in, one result record out.
#pragma once

#include <filesystem>
#include <functional>

#include "runtime/base/errors.h"
#include "runtime/experiment/experiment_options.h"
#include "runtime/records/schema.h"
#include "runtime/train/trainer.h"

namespace moonshard::experiment {

/// Checks and fills in: every size is the preset's or the user's, the device is named.
ExperimentOptions resolve_experiment(const ExperimentOptions& options);

/// The same for a table: unknown keys and bad values raise UsageError. Returns effective options.
Json resolve_experiment_table(const Json& table);

using StepObserver = std::function<void(const train::StepReport& report, bool is_warmup)>;

/// The user stopped an experiment that had made steps: their record, with the status "interrupted".
class InterruptedExperiment : public Interrupted {
 public:
  InterruptedExperiment(std::string text, records::Result steps_so_far)
      : record(std::move(steps_so_far)), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  records::Result record;

 private:
  std::string text_;
};

/// Where files beside a record go, and what their names begin with, so that those of several
/// records can lie in one folder.
struct FilesBeside {
  FilesBeside(std::filesystem::path in = ".", std::string begins_with = "")
      : folder(std::move(in)), prefix(std::move(begins_with)) {}
  std::filesystem::path named(const std::string& name) const { return folder / (prefix + name); }
  std::filesystem::path folder;
  std::string prefix;
};

/// Runs warm-up and measured steps. Running out of memory is an outcome, not an error: status "oom"
/// with the phase, bytes asked for and bytes free. Other errors are thrown; Interrupted
/// after the first step is an InterruptedExperiment. Traces and snapshots,
/// where the options ask for them, go to `place`.
records::Result measure_experiment(const ExperimentOptions& options,
                                   const StepObserver& observer = {},
                                   const FilesBeside& place = {});

/// The same as the record of points/<id>/result.json.
Json run_experiment(const ExperimentOptions& options, const StepObserver& observer = {},
                    const FilesBeside& place = {});

/// The seed documents' result file, made from a record: their keys exactly.
Json seed_result(const Json& record);

}  // namespace moonshard::experiment
