#include "viewer/panels/privacy_verdict.h"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include "runtime/accountant/epsilon.h"
#include "runtime/records/schema_json.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

using VerdictKind = PrivacyVerdict::Kind;

// Claims are often written with three digits.
constexpr double kTolerance = 0.002;
// Of a history: more kinds of steps than schedules have, and what a window can wait for.
constexpr size_t kMostPhases = 64;

PrivacyVerdict of_kind(VerdictKind kind, std::string text) {
  PrivacyVerdict verdict;
  verdict.kind = kind;
  verdict.text = std::move(text);
  return verdict;
}

std::string first_missing(const PrivacyPart& claim) {
  if (std::isnan(claim.delta)) return "delta";
  if (!claim.history.empty()) return "";
  if (std::isnan(claim.sampling_rate)) return "sampling_rate";
  if (std::isnan(claim.noise_multiplier)) return "noise_multiplier";
  if (std::isnan(claim.steps)) return "steps";
  return "";
}

// The phases of the claim, and of the steps that it does not count.
std::vector<accountant::GaussianPhase> phases_of(const PrivacyPart& claim, double recorded_steps,
                                                 double& counted) {
  std::vector<accountant::GaussianPhase> phases;
  for (const PrivacyPhase& phase : claim.history)
    phases.push_back({phase.q, phase.sigma, phase.steps});
  if (phases.empty()) phases.push_back({claim.sampling_rate, claim.noise_multiplier, claim.steps});
  counted = 0;
  for (const accountant::GaussianPhase& phase : phases) counted += phase.steps;
  const double all = std::max({counted, recorded_steps, std::isnan(claim.steps) ? 0 : claim.steps});
  phases.back().steps += all - counted;
  return phases;
}

// The method that checks a claim. Accountants that we do not have may prove less than Renyi's, as
// may the proof behind an approximation: of those a lower claim is no proof of a mistake.
std::string method_for(const std::string& accountant, bool& may_be_tighter) {
  may_be_tighter = false;
  if (accountant.empty() || accountant == "rdp" || accountant == "renyi") return "rdp";
  if (accountant == "prv" || accountant == "pld" || accountant == "gaussian") return accountant;
  may_be_tighter = true;
  return accountant == "gdp" ? "pld" : "rdp";
}

bool covers(double claimed, double needed) {
  return needed - claimed <= kTolerance * std::max(needed, 1e-3);
}

void compare(const PrivacyPart& claim, const accountant::Epsilon& found, bool may_be_tighter,
             PrivacyVerdict& verdict) {
  const double above = verdict.epsilon - claim.epsilon;
  const bool approximate = claim.accountant == "gdp";
  if (covers(claim.epsilon, verdict.epsilon)) {
    verdict.kind = VerdictKind::Agrees;
    const bool loose = -above > kTolerance * std::max(claim.epsilon, 1e-3);
    verdict.text = loose ? "agrees: the claim is above what the numbers give" : "agrees";
    if (approximate) verdict.text += "; gdp by itself is an approximation, not a guarantee";
  } else if (approximate) {
    verdict.kind = VerdictKind::Unconfirmed;
    verdict.text = fmt::format(
        "not confirmed: gdp is an approximation, not a guarantee; what can be proved is {} more",
        format_number(above));
  } else if (may_be_tighter) {
    verdict.kind = VerdictKind::Unconfirmed;
    verdict.text =
        fmt::format("not confirmed: Renyi accounting gives {} more; '{}' may give less than that",
                    format_number(above), clean_text(claim.accountant, 32));
  } else if (covers(claim.epsilon, found.lower)) {
    // Only brackets have a lower end; a finer grid may well show what is claimed.
    verdict.kind = VerdictKind::Unconfirmed;
    verdict.text = fmt::format("not confirmed: the true epsilon is between {} and {}",
                               format_number(found.lower), format_number(found.upper));
  } else {
    verdict.kind = VerdictKind::TooLow;
    verdict.text = fmt::format("CLAIM TOO LOW by {} ({:.0f} %)", format_number(above),
                               100 * above / std::max(verdict.epsilon, 1e-300));
  }
}

}  // namespace

PrivacyVerdict check_claim(const PrivacyPart& claim, size_t recorded_steps) {
  if (std::isnan(claim.epsilon)) {
    const std::string why = clean_text(claim.why_no_epsilon, 512);
    if (records::is_missing(claim))
      return of_kind(VerdictKind::NoClaim, "The result says nothing about privacy.");
    return of_kind(VerdictKind::NoClaim, why.empty()
                                             ? "The result claims no epsilon and does not say why."
                                             : "Not private: no epsilon is claimed: " + why + ".");
  }
  if (!claim.private_engine) {
    return of_kind(
        VerdictKind::Unfounded,
        "CLAIM WITHOUT GROUND: by the same result the engine does not clip and add noise");
  }
  if (claim.noise == "counter" || claim.noise == "mixed" || claim.noise == "none") {
    return of_kind(VerdictKind::Unfounded,
                   "CLAIM WITHOUT GROUND: reproducible noise: not private; who has the seed, which "
                   "is in the result, can take the noise away");
  }
  if (claim.sampler != "poisson") {
    return of_kind(VerdictKind::Unknown,
                   fmt::format("cannot be recomputed: batches must be drawn by Poisson sampling, "
                               "the result says sampler = '{}'",
                               clean_text(claim.sampler, 32)));
  }
  if (const std::string missing = first_missing(claim); !missing.empty()) {
    return of_kind(VerdictKind::Unknown,
                   fmt::format("cannot be recomputed: the result has no {}", missing));
  }
  if (claim.history.size() > kMostPhases) {
    return of_kind(VerdictKind::Unknown,
                   fmt::format("cannot be recomputed: a history of {} phases, at most {} are read",
                               claim.history.size(), kMostPhases));
  }
  PrivacyVerdict verdict;
  accountant::Epsilon found;
  bool may_be_tighter = false;
  double counted = 0;
  try {
    verdict.method = method_for(claim.accountant, may_be_tighter);
    const auto phases = phases_of(claim, static_cast<double>(recorded_steps), counted);
    verdict.steps = 0;
    for (const accountant::GaussianPhase& phase : phases) verdict.steps += phase.steps;
    found = accountant::epsilon_of(verdict.method, phases, claim.delta);
    verdict.epsilon = found.epsilon;
    verdict.best_order = found.best_order;
  } catch (const std::exception& error) {
    return of_kind(VerdictKind::Unknown, "cannot be recomputed: " + clean_text(error.what(), 512));
  }
  if (!std::isfinite(verdict.epsilon)) {
    verdict.kind = VerdictKind::TooLow;
    verdict.text = "CLAIM TOO LOW: with these numbers no finite epsilon holds";
    return verdict;
  }
  compare(claim, found, may_be_tighter, verdict);
  if (verdict.steps > counted && verdict.kind == VerdictKind::TooLow) {
    verdict.text += fmt::format("; the result has {} steps, the claim counts {}", recorded_steps,
                                format_number(counted));
  }
  return verdict;
}

}  // namespace moonshard::viewer
