// What bounds a step: rules that turn figures of a record into cause, evidence and advice. They are
// those of the guide on profiling flash clipping (document 001), and two of the ZeRO comparison
// (002). docs/analysis.md lists them.
#pragma once

#include <span>

#include "runtime/analysis/rows.h"

namespace moonshard::analysis {

/// Where a share counts as high; percent of the step unless said otherwise.
struct Thresholds {
  double communication_percent = 20;   ///< communication that nothing hides
  double utilization_percent = 70;     ///< the GPU counts as idle below this
  double norm_reduce_percent = 5;      ///< the sum of norms over ranks, which every rank waits for
  double norms_percent = 25;           ///< per-sample norms of all layers
  double layer_times_median = 3;       ///< a layer's norm against the median layer's
  double layer_percent_of_norms = 20;  ///< and against all norms together
  double second_backward_percent = 25;
  double kept_percent_of_peak = 10;  ///< what an engine keeps until the factors are known
  double rise_percent_of_peak = 10;  ///< memory at the end of backward above that at its start
  double data_percent = 10;
};

struct ThresholdName {
  const char* name;
  double Thresholds::*field;
};
std::span<const ThresholdName> threshold_names();

struct Evidence {
  std::string point, text;
};

struct Finding {
  std::string name, cause;
  std::vector<std::string> advice;
  std::vector<Evidence> evidence;  ///< of each point that the rule is true of
};

struct BottleneckReport {
  std::vector<Finding> findings;  ///< those with the most evidence first
  std::vector<std::string> notes;
};

/// Applies the rules to every row with status ok.
BottleneckReport find_bottlenecks(const Table& table, const Thresholds& thresholds = {});

}  // namespace moonshard::analysis
