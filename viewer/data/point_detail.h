// Everything of one point that only its own panels need: samples, phases, memory, communication,
// layers, privacy. Read when the point is looked at, from result.json of anybody.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace moonshard::viewer {

struct Statistics {
  double count = 0;
  double mean = NAN, median = NAN, min = NAN, max = NAN, p95 = NAN, iqr = NAN;
};

struct PhaseTime {
  std::string name;
  Statistics ms;
};

struct OwnedBytes {
  std::string owner;
  double bytes = 0;
};

struct MemoryStage {
  std::string stage;
  double rank = 0;
  double allocated = 0, max_allocated = 0, reserved = 0, max_reserved = 0, rss = 0;  ///< bytes
};

/// Memory through the detailed step. All lists are as long as ms.
struct MemoryTimeline {
  struct Owner {
    std::string name;
    std::vector<double> bytes;
  };
  std::vector<double> ms, total;
  std::vector<std::string> phases;  ///< names, in order of first appearance
  std::vector<uint32_t> phase;      ///< index into phases for each moment
  std::vector<Owner> owners;
};

struct LayerTime {
  std::string layer, kind;
  double norm_ms = 0;
};

struct Collective {
  std::string operation;
  double count = 0, bytes = 0, work_ms = 0, exposed_ms = 0, overlap_percent = 0;
};

/// One rank of a job; comm_* are NaN where the record predates them.
struct RankSummary {
  double rank = 0;
  double peak_memory_bytes = NAN, median_time_ms = NAN;
  double comm_work_ms = NAN, comm_exposed_ms = NAN, comm_overlap_percent = NAN;
};

struct StepRow {
  double step = 0;
  bool warmup = false;
  double loss = NAN, lr = NAN, time_ms = NAN, clip_fraction = NAN, epsilon = NAN;
};

/// Steps with one sampling rate and one noise multiplier.
struct PrivacyPhase {
  double q = NAN, sigma = NAN, steps = NAN;
};

/// What the result says about privacy. A claim is not a proof: the panel computes it again.
struct PrivacyClaim {
  bool present = false;         ///< the result has a privacy part
  bool private_engine = false;  ///< the engine clips and adds noise
  double epsilon = NAN, delta = NAN, sampling_rate = NAN, noise_multiplier = NAN, steps = NAN;
  std::vector<PrivacyPhase> history;  ///< where rate or noise changed on the way; else empty
  std::string sampler, accountant, noise;
  std::string why_no_epsilon;
  double max_grad_norm = NAN;
  std::vector<double> norm_edges, norm_counts;  ///< histogram: counts.size() + 1 edges
};

struct PointDetail {
  std::vector<PhaseTime> phases;  ///< in the order of the step
  Statistics step_ms;
  std::vector<double> samples_ms, warmup_ms;
  std::vector<MemoryStage> stages;
  double peak_bytes = NAN, rest_bytes = NAN;
  std::string peak_phase;
  std::vector<OwnedBytes> breakdown, after_step;
  MemoryTimeline timeline;
  std::vector<PhaseTime> norms;  ///< parts of the norm work; one sample, in ms.median
  std::vector<LayerTime> layers;
  std::vector<Collective> comm;
  std::vector<RankSummary> ranks;
  std::vector<StepRow> steps;
  PrivacyClaim privacy;
  std::vector<std::string> traces;     ///< file names in the point's folder: *.json, *.json.gz
  std::vector<std::string> snapshots;  ///< *.pickle
  std::vector<std::string> logs;       ///< log.*.txt
  std::vector<std::string> tables;     ///< *.csv
};

}  // namespace moonshard::viewer
