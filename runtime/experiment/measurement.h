// Gathers what the steps of an experiment report and turns it into the record: times, memory by
// stage and by owner, communication, throughput, utilisation. docs/measurement.md explains each
// figure.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/experiment/experiment.h"
#include "runtime/profile/utilization.h"
#include "runtime/train/step_watch.h"

namespace moonshard::train {

class Measurement {
 public:
  Measurement(const ExperimentOptions& options, c10::Device device);

  /// A row of the stage log: what memory is held now, and the most so far.
  void add_stage(const std::string& stage);
  void end_warmup();
  void begin_measured_steps();
  void add_step(const Trainer& trainer, const StepReport& report, bool is_warmup);
  void end_measured_steps();
  void add_detailed_step(const Trainer& trainer, const StepReport& report);
  /// All of it into the record; with several ranks all of them together.
  void finish(Trainer& trainer, Json& record);

 private:
  Json metrics(Trainer& trainer) const;
  Json time_summary() const;
  void add_utilization(const Trainer& trainer, Json& metrics) const;
  void add_communication(Json& metrics) const;
  Json rank_rows(const Trainer& trainer, const Json& metrics) const;
  Json privacy(const Trainer& trainer) const;

  ExperimentOptions options_;
  c10::Device device_;
  std::chrono::steady_clock::time_point begun_;
  Json stages_ = Json::array(), steps_ = Json::array();
  std::vector<double> times_ms_, warmup_ms_, clip_fractions_;
  std::map<std::string, std::vector<double>> phase_samples_;
  int64_t tokens_ = 0, samples_ = 0, peak_bytes_ = 0, peak_reserved_bytes_ = 0, kept_bytes_ = 0,
          dropped_ = 0;
  double loss_ = 0;
  std::unique_ptr<profile::UtilizationSampler> sampler_;
  profile::Utilization utilization_;
  Json sharding_, memory_, norms_, layers_, communication_, norms_histogram_;
  double detailed_ms_ = 0;
};

}  // namespace moonshard::train
