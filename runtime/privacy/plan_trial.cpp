#include "runtime/privacy/plan_trial.h"

#include <algorithm>
#include <cstdio>

#include "runtime/core/tuning.h"

namespace moonshard::privacy {
namespace {

constexpr const char* kOwn = "layer by layer";
constexpr const char* kOther = "one rule for all layers";

}  // namespace

void PlanTrial::open(const std::string& where, const std::string& plans) {
  if (was_opened_) return;
  was_opened_ = true;
  where_ = where;
  key_ = "steps of auto " + plans;
  const std::string known = tuned(where_, key_, [] { return TunedChoice{}; }).choice;
  is_open_ = known.empty();
  other_won_ = known == kOther;
}

void PlanTrial::observe(const ObservedStep& step) {
  if (!is_open_) return;
  if (step.dropped > 0 || (steps_ > 0 && step.tokens != tokens_)) {
    is_open_ = false;
    return;
  }
  const double ms = step.ms;
  tokens_ = step.tokens;
  const bool is_other = takes_other();
  if (++steps_ <= 2) return;
  if (!is_other) {
    own_ms_ = ms;
    best_own_ms_ = steps_ == 3 ? ms : std::min(best_own_ms_, ms);
    return;
  }
  best_other_ms_ = steps_ == 4 ? ms : std::min(best_other_ms_, ms);
  if (ms > kFaster * own_ms_) return close(false);
  if (steps_ == kSteps) close(true);
}

void PlanTrial::close(bool other_won) {
  is_open_ = false;
  // Another trainer of this process may have been faster to find out.
  const TunedChoice found = tuned(where_, key_, [&] {
    return TunedChoice{other_won ? kOther : kOwn, {{kOwn, best_own_ms_}, {kOther, best_other_ms_}}};
  });
  other_won_ = found.choice == kOther;
  if (other_won && other_won_)
    std::fprintf(stderr,
                 "moonshard: auto: a step takes %.1f ms where all layers keep the same, %.1f as "
                 "planned layer by layer: they keep the same from now on\n",
                 best_other_ms_, best_own_ms_);
}

}  // namespace moonshard::privacy
