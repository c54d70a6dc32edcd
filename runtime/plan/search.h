// Every configuration of a model on a cluster that a table of choices spans, predicted, and the
// best of them. 10,000 take seconds: shapes are worked out once per model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/plan/prediction.h"

namespace moonshard::plan {

/// Values that are tried, by option, the usual one first: of configurations that are alike, the one
/// with most of these is shown. Options without values stay as they are. `global_batch` is
/// split into ranks, micro-batches and accumulation; 0 leaves batch_size and grad_accum as given.
/// Where batch_size was given it stays, and the accumulation follows from it, or must be as given.
struct SearchSpace {
  experiment::ExperimentOptions base;  ///< resolved
  std::vector<std::pair<std::string, std::vector<Json>>> axes;
  int64_t global_batch = 0;
  bool keeps_batch = false, keeps_accum = false;
  /// Of axes that others follow from (heads have a width, a dtype is computed in): the options as
  /// they resolve with these values, before the axes are assigned. Empty: `base`.
  std::vector<std::string> resolved_axes;
  std::function<experiment::ExperimentOptions(const Json& values)> resolve;
  int64_t threads = 2;
  bool by_tokens =
      false;  ///< tokens per second decide, not samples: where these have several lengths
};

struct Candidate {
  experiment::ExperimentOptions options;
  Prediction prediction;
  std::vector<experiment::ExperimentOptions> alike;  ///< as fast and as large; a few of them
  size_t changes = 0;  ///< choices that are not the first of their axis
  size_t number = 0;   ///< among all configurations
};

struct SearchResult {
  std::vector<Candidate> fitting;    ///< fastest first, at most `keep`, none alike
  std::vector<Candidate> too_large;  ///< the fastest that do not fit, at most `keep`
  /// Time against memory, no other is faster and smaller: of those that fit, or of all if none do.
  /// Of those that are alike the one that the plans have.
  std::vector<Candidate> front;
  int64_t tried = 0, fits = 0, refused = 0;  ///< refused: options that exclude each other
};

/// Samples per second decide, or tokens. Throws UsageError when nothing can be tried.
SearchResult search(const SearchSpace& space, const Cluster& cluster, size_t keep);

/// Fastest first; the same order whichever thread was first.
void sort_by_speed(std::vector<Candidate>& list, bool by_tokens);
/// Leaves the fastest first; each that follows needs less memory than all before it.
void keep_front(std::vector<Candidate>& list, bool by_tokens);

/// "96.2 of 80.0 GiB, activations 61.0; checkpointing = block saves 48.0".
std::string why_not(const experiment::ExperimentOptions& options, const Prediction& prediction,
                    const Cluster& cluster);

}  // namespace moonshard::plan
