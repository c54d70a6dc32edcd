// What a training run has spent so far: the phases of its steps in order. Saved with checkpoints
// and results, so that a resumed run continues the same account.
#pragma once

#include <string>
#include <vector>

#include "runtime/accountant/epsilon.h"
#include "runtime/accountant/gaussian_phase.h"
#include "runtime/base/json.h"

namespace moonshard::accountant {

class History {
 public:
  /// Above any real schedule; a file with more is refused.
  static constexpr size_t kMostPhases = 10'000;

  /// Adds steps; merged with the last phase when sampling rate and noise are the same. Phases of no
  /// steps are dropped. Throws UsageError for invalid numbers.
  void add(const GaussianPhase& phase);

  const std::vector<GaussianPhase>& phases() const { return phases_; }
  double num_steps() const;
  bool empty() const { return phases_.empty(); }

  /// epsilon_of() of all that was added.
  Epsilon epsilon(const std::string& method, double delta) const;

  /// [ { "q": 0.01, "sigma": 1.1, "steps": 300 }, ... ]: digits enough to read back the same
  /// doubles.
  Json to_json() const;
  /// The file is untrusted input: throws UsageError for another structure, invalid numbers and more
  /// than kMostPhases; `where` is the message's prefix.
  static History from_json(const Json& list, const std::string& where = "history");

 private:
  std::vector<GaussianPhase> phases_;
};

}  // namespace moonshard::accountant
