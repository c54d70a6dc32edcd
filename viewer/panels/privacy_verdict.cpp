#include "viewer/panels/privacy_verdict.h"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include "runtime/accountant/rdp.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

using Kind = PrivacyVerdict::Kind;

// Claims are often written with three digits.
constexpr double kTolerance = 0.002;

PrivacyVerdict of_kind(Kind kind, std::string text) {
  PrivacyVerdict verdict;
  verdict.kind = kind;
  verdict.text = std::move(text);
  return verdict;
}

std::string first_missing(const PrivacyClaim& claim) {
  if (std::isnan(claim.delta)) return "delta";
  if (std::isnan(claim.sampling_rate)) return "sampling_rate";
  if (std::isnan(claim.noise_multiplier)) return "noise_multiplier";
  if (std::isnan(claim.steps)) return "steps";
  return "";
}

// Accountants that promise less than Renyi's for the same noise exist; of those a lower figure is
// no proof of a mistake.
bool is_renyi(const std::string& accountant) {
  return accountant.empty() || accountant == "rdp" || accountant == "renyi";
}

void compare(const PrivacyClaim& claim, PrivacyVerdict& verdict) {
  const double above = verdict.epsilon - claim.epsilon;
  if (above <= kTolerance * std::max(verdict.epsilon, 1e-3)) {
    verdict.kind = Kind::Agrees;
    const bool loose = -above > kTolerance * std::max(claim.epsilon, 1e-3);
    verdict.text = loose ? "agrees: the claim is above what the numbers give" : "agrees";
  } else if (!is_renyi(claim.accountant)) {
    verdict.kind = Kind::Unconfirmed;
    verdict.text =
        fmt::format("not confirmed: Renyi accounting gives {} more; '{}' may give less than that",
                    format_number(above), clean_text(claim.accountant, 32));
  } else {
    verdict.kind = Kind::TooLow;
    verdict.text = fmt::format("CLAIM TOO LOW by {} ({:.0f} %)", format_number(above),
                               100 * above / std::max(verdict.epsilon, 1e-300));
  }
}

}  // namespace

PrivacyVerdict check_claim(const PrivacyClaim& claim, size_t recorded_steps) {
  if (std::isnan(claim.epsilon)) {
    const std::string why = clean_text(claim.why_no_epsilon, 512);
    if (!claim.present) return of_kind(Kind::NoClaim, "The result says nothing about privacy.");
    return of_kind(Kind::NoClaim, why.empty() ? "The result claims no epsilon and does not say why."
                                              : "No epsilon is claimed: " + why + ".");
  }
  if (!claim.private_engine) {
    return of_kind(
        Kind::Unfounded,
        "CLAIM WITHOUT GROUND: by the same result the engine does not clip and add noise");
  }
  if (claim.sampler != "poisson") {
    return of_kind(Kind::Unknown,
                   fmt::format("cannot be recomputed: batches must be drawn by Poisson sampling, "
                               "the result says sampler = '{}'",
                               clean_text(claim.sampler, 32)));
  }
  if (const std::string missing = first_missing(claim); !missing.empty()) {
    return of_kind(Kind::Unknown,
                   fmt::format("cannot be recomputed: the result has no {}", missing));
  }
  PrivacyVerdict verdict;
  verdict.steps = std::max(claim.steps, static_cast<double>(recorded_steps));
  try {
    const accountant::RdpEpsilon found = accountant::rdp_epsilon(
        {{claim.sampling_rate, claim.noise_multiplier, verdict.steps}}, claim.delta);
    verdict.epsilon = found.epsilon;
    verdict.best_order = found.best_order;
  } catch (const std::exception& error) {
    return of_kind(Kind::Unknown, "cannot be recomputed: " + clean_text(error.what(), 512));
  }
  if (!std::isfinite(verdict.epsilon)) {
    verdict.kind = Kind::TooLow;
    verdict.text = "CLAIM TOO LOW: with these numbers no finite epsilon holds";
    return verdict;
  }
  compare(claim, verdict);
  if (verdict.steps > claim.steps && verdict.kind == Kind::TooLow) {
    verdict.text += fmt::format("; the result has {} steps, the claim counts {}", recorded_steps,
                                format_number(claim.steps));
  }
  return verdict;
}

}  // namespace moonshard::viewer
