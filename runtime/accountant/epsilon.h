// Epsilon of a schedule of noised steps, by the name of a method:
//   rdp       Renyi divergences (rdp.h): a guarantee, quick, a little above the truth
//   prv       privacy loss on a grid that keeps its mean (privacy_loss.h): a bracket of about
//             0.01 either way, of which the upper end is claimed
//   pld       privacy loss on a grid, rounded pessimistically (privacy_loss.h): the tightest bound
//
//   gaussian  closed form; every phase must see all samples (q = 1)
//
//   gdp       central limit (gaussian.h): often below the truth, no guarantee
//
// All assume Poisson subsampling and add/remove-one-sample neighbours.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "runtime/accountant/gaussian.h"
#include "runtime/base/json.h"

namespace moonshard::accountant {

struct Epsilon {
  double epsilon = 0;               ///< claimed; infinite without noise
  double best_order = NAN;          ///< of rdp; NaN elsewhere
  double lower = NAN, upper = NAN;  ///< of prv and pld: the truth is between them; NaN elsewhere
  bool guarantee = true;            ///< false: an approximation that must not be claimed
  std::string note;                 ///< a caveat on the number; often empty
};

inline constexpr const char* kApproximationNote = "approximation, not a guarantee";

/// rdp, prv, pld, gdp, gaussian.
const std::vector<std::string>& methods();

/// Throws UsageError for a name that is none of methods().
void check_method(const char* where, const std::string& method);

/// The smallest epsilon that the method proves for the composition of the phases at this delta.
/// `orders` are for rdp only; empty means default_orders(). Throws UsageError for invalid numbers,
/// unknown methods, orders with another method, and gaussian with 0 < q < 1.
Epsilon epsilon_of(const std::string& method, const std::vector<GaussianPhase>& phases,
                   double delta, const std::vector<double>& orders = {});

/// What a training run has spent so far: the phases of its steps in order. Saved with checkpoints
/// and results, so that a resumed run continues the same account.
class History {
 public:
  /// Above any real schedule; a file with more is refused.
  static constexpr size_t kMostPhases = 10'000;

  /// Adds steps; merged with the last phase when sampling rate and noise are the same. Phases of no
  /// steps are dropped. Throws UsageError for invalid numbers.
  void add(const GaussianPhase& phase);
  /// The same, merged with any phase of that sampling rate and noise: where steps and releases
  /// alternate there would be a phase for each. No order changes what was spent.
  void add_to_kind(const GaussianPhase& phase);

  const std::vector<GaussianPhase>& phases() const { return phases_; }
  double num_steps() const;
  /// Steps that this one has beyond those of another, by sampling rate and noise.
  History beyond(const History& other) const;
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
