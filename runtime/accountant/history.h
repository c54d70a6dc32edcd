// What a training run has spent so far: the phases of its steps in order. Saved with checkpoints
// and results, so that a resumed run goes on with the same account.
#pragma once

#include <string>
#include <vector>

#include "runtime/accountant/epsilon.h"
#include "runtime/accountant/gaussian_phase.h"
#include "runtime/base/json.h"

namespace moonshard::accountant {

class History {
 public:
  /// More phases than any schedule has; a file with more is refused.
  static constexpr size_t kMostPhases = 10'000;

  /// Steps that were done; joined with the last phase when sampling rate and noise are the same.
  /// Phases of no steps leave no trace. Throws UsageError for numbers that no schedule has.
  void add(const GaussianPhase& phase);

  const std::vector<GaussianPhase>& phases() const { return phases_; }
  double num_steps() const;
  bool empty() const { return phases_.empty(); }

  /// epsilon_of() of all that was added.
  Epsilon epsilon(const std::string& method, double delta) const;

  /// [ { "q": 0.01, "sigma": 1.1, "steps": 300 }, ... ]: digits enough to read back the same
  /// doubles.
  Json to_json() const;
  /// Files may come from anybody: throws UsageError for another shape, for numbers that no
  /// schedule has and for more than kMostPhases; `where` opens the message.
  static History from_json(const Json& list, const std::string& where = "history");

 private:
  std::vector<GaussianPhase> phases_;
};

}  // namespace moonshard::accountant
