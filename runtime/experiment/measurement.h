// Gathers what the steps of an experiment report and turns it into the record (records/schema.h):
// times, memory by stage and by owner, communication, throughput, utilisation.
// docs/measurement.md explains how each figure is measured.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/experiment/experiment.h"
#include "runtime/experiment/record_parts.h"
#include "runtime/profile/utilization.h"
#include "runtime/records/schema.h"
#include "runtime/train/step_watch.h"
#include "runtime/train/trainer.h"

namespace moonshard::experiment {

class Measurement {
 public:
  Measurement(const ExperimentOptions& options, c10::Device device);

  /// A row of the stage log: what memory is held now, and the most so far.
  void add_stage(const std::string& stage);
  void end_warmup();
  void begin_measured_steps();
  void add_step(const train::Trainer& trainer, const train::StepReport& report, bool is_warmup);
  void end_measured_steps();
  void add_detailed_step(const train::Trainer& trainer, const train::StepReport& report);
  /// What is known so far of memory and of the machine: all that there will be when memory runs
  /// out.
  void leave_stages(records::Result& record);
  /// The steps so far into the record, after an interrupt. Asks no other rank: they may have gone.
  void stop(train::Trainer& trainer, records::Result& record);
  /// All of it into the record; with several ranks all of them together.
  void finish(train::Trainer& trainer, records::Result& record);

 private:
  void fill_metrics(train::Trainer& trainer, records::Metrics& metrics) const;
  void fill_utilization(const train::Trainer& trainer, records::Metrics& metrics) const;
  void fill_communication(records::Metrics& metrics) const;
  records::TimePart time_summary() const;
  void add_layer_sizes(const train::Trainer& trainer);
  void add_watched_memory(const profile::LedgerReport& ledger);
  std::vector<records::NormSum> norm_sums(const train::Trainer& trainer) const;
  std::vector<records::RankRow> rank_rows(const train::Trainer& trainer,
                                          const records::Metrics& metrics) const;
  records::PrivacyPart privacy(const train::Trainer& trainer) const;

  ExperimentOptions options_;
  c10::Device device_;
  std::chrono::steady_clock::time_point begun_;
  records::Result parts_;  ///< what is known so far; finish() adds the figures
  std::vector<double> times_ms_, warmup_ms_, clip_fractions_;
  std::map<std::string, std::vector<double>> phase_samples_;
  int64_t tokens_ = 0, samples_ = 0, peak_bytes_ = 0, peak_reserved_bytes_ = 0, kept_bytes_ = 0,
          dropped_ = 0;
  double loss_ = 0;
  std::unique_ptr<profile::UtilizationSampler> sampler_;
  profile::Utilization utilization_;
  records::NormHistogram norms_histogram_;
  double detailed_ms_ = 0;
  std::vector<records::MemoryTimeline> watched_;  ///< of each watched step
  double watched_bytes_ = 0;                      ///< sum of their means
  std::vector<double> squares_before_sum_, squares_after_sum_;
};

}  // namespace moonshard::experiment
