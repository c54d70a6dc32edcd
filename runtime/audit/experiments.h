// The experiments of an audit, each a different test on the released weights. One test does not see
// every flaw: reused noise shows in a difference of steps, and a batch size that scales the noise
// does not show in one canary's row.
#pragma once

#include <string>
#include <vector>

#include "runtime/audit/bounds.h"
#include "runtime/audit/canary_bench.h"

namespace moonshard::audit {

/// Scores of one experiment. Scores and membership stay inside the audit: results contain only the
/// bounds.
struct Experiment {
  std::string name;  ///< one of kExperiments
  Scores scores;
};

/// projection   the release along the canary's own gradient
/// difference   the same minus a neighbouring step's, in which the canary has no part
/// scale        the size of the noise in unused rows, in a batch of one or two
/// silence      the same in a batch of none or one
inline constexpr const char* kExperiments[] = {"projection", "difference", "scale", "silence"};

struct ExperimentSizes {
  int64_t canaries = 4000;  ///< of projection and difference; each takes part in at most one step
  int64_t trials = 120;     ///< of scale and silence together, a step each
};

/// Runs them all. The coins are drawn from `coin_seed`; all ranks compute the same scores.
std::vector<Experiment> run_experiments(BenchOptions options, const ExperimentSizes& sizes,
                                        uint64_t coin_seed, std::shared_ptr<comm::World> world);

}  // namespace moonshard::audit
