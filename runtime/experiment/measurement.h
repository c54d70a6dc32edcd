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
#include "runtime/profile/utilization.h"
#include "runtime/records/schema.h"
#include "runtime/train/step_watch.h"
#include "runtime/train/trainer.h"

namespace moonshard::experiment {

// What a step's report says about ranks, memory and communication, as parts of a record.

/// What this rank holds at the end of a step.
records::RankMemory held_by_rank(const train::Trainer& trainer, const train::StepReport& report);

/// The same with what is known of the job it belongs to.
records::ShardingPart sharding_part(const train::Trainer& trainer, const train::StepReport& report);

records::MemoryPart memory_part(const profile::LedgerReport& ledger);

/// `modelled`: their times come from a link's speed (world = fake:N).
std::vector<records::Collective> comm_rows(const std::vector<profile::Span>& spans,
                                           bool modelled = false);

/// Who held what at the moment when a step ran out of memory, from its unfinished ledger.
records::MemoryPart memory_at_end(const profile::LedgerReport& ledger, const std::string& phase);

/// Timelines of steps in a row as one, each with at most its share of kTimelineSamples.
records::MemoryTimeline joined_timelines(std::vector<records::MemoryTimeline> steps);

/// About 40 bins, evenly spaced in the logarithm between powers of two. Norms that are 0 or not
/// finite are left out, and counted; missing without norms. Norms of samples are secret: only for
/// results that make no claim of privacy.
records::NormHistogram norm_histogram(const std::vector<double>& norms, double max_grad_norm);

std::vector<records::Traffic> traffic_of(const train::StepReport& report);

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
