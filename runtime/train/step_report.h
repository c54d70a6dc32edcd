// The report of a training step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/privacy/clip_engine.h"
#include "runtime/profile/memory.h"
#include "runtime/profile/timeline.h"
#include "runtime/sharding/parallel.h"

namespace moonshard::train {

struct StepDetails;

/// What one step did. Counts, loss and shares are over all ranks; norms, factors, times and memory
/// are this rank's own.
struct StepReport {
  int64_t step = 0;  ///< 1 for the first
  double loss = 0;   ///< mean over the samples
  double lr = 0;
  int64_t batch_size = 0;  ///< samples of all micro-batches
  int64_t tokens = 0;
  std::vector<double> norms;      ///< per sample; empty for engines that do not clip
  std::vector<double> all_norms;  ///< of all ranks in their order, the same on each
  std::vector<double> factors;    ///< per sample; empty too with per-layer clipping
  double clip_fraction = 0;       ///< share of samples whose norm was above the bound
  double clip_bound = 0;          ///< C of this step; 0 for engines that do not clip
  int64_t privacy_steps = 0;      ///< private updates so far, those before a resume included
  std::optional<double> epsilon;  ///< spent so far, an upper bound; none without a claim
  int64_t dropped = 0;            ///< samples without a finite gradient: they contributed nothing
  int64_t kept_bytes = 0;         ///< what the engine held across layers
  double time_ms = 0;             ///< sum of the phases
  std::vector<std::pair<std::string, double>> phases;  ///< (phase, ms), in order
  std::vector<privacy::LayerNorms> layers;             ///< when asked for, micro-batches in order
  profile::MemoryReading memory;
  sharding::ShardingMemory sharding;           ///< what the wrapper holds; 0 without one
  std::vector<comm::Traffic> traffic;          ///< collectives of this rank
  std::vector<profile::Span> spans;            ///< when asked for
  std::shared_ptr<const StepDetails> details;  ///< when asked for (step_watch.h)
};

}  // namespace moonshard::train
