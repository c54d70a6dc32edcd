// A result's claim of privacy, computed again. A claim is never shown without this.
#pragma once

#include <cmath>
#include <string>

#include "viewer/data/run_data.h"

namespace moonshard::viewer {

struct PrivacyVerdict {
  enum class Kind {
    NoClaim,      ///< the result claims nothing, and text says why
    Agrees,       ///< recomputed: the same, or less than what is claimed
    TooLow,       ///< recomputed: more than what is claimed
    Unconfirmed,  ///< by another method; ours gives more: neither confirmed nor refuted
    Unfounded,    ///< a claim that contradicts the rest of the result
    Unknown,      ///< a claim that cannot be computed again
  };
  Kind kind = Kind::NoClaim;
  std::string text;         ///< one sentence, as in "CLAIM TOO LOW by 0.41 (14 %)"
  double epsilon = NAN;     ///< recomputed; NaN where it was not
  std::string method;       ///< by which it was: rdp, prv, pld or gaussian
  double best_order = NAN;  ///< of rdp
  double steps = NAN;       ///< what it was recomputed with
};

/// The accountant that the claim names, or Renyi's, with the numbers of the claim itself: its
/// history of phases where it has one. Steps that the result shows but the claim does not count are
/// counted. Of gdp, an approximation, the guarantee for the same noise is computed.
PrivacyVerdict check_claim(const PrivacyPart& claim, size_t recorded_steps);

}  // namespace moonshard::viewer
