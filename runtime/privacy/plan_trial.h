// A last guard of engine "auto", whose plan adds up what layers take by themselves: how they get
// along in a step, with the update and with what else memory carries, only whole steps tell. The
// first steps run under its plan and under another one, in turns; which of them is faster is found
// once per machine and remembered (core/tuning.h). How long a step takes does not depend on what is
// in its samples, as long as none is dropped: a step that has dropped one ends the trial.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/privacy/clip_engine.h"

namespace moonshard::privacy {

class PlanTrial {
 public:
  /// Steps under each plan. The first one, which takes memory and makes one-time choices, does not
  /// count.
  static constexpr int64_t kRounds = 3;
  static constexpr int64_t kSteps = 2 * kRounds;
  /// The other plan wins where it takes at most so much of the time in every round that counts: it
  /// must not win by the noise of a measurement.
  static constexpr double kFaster = 0.99;

  /// There is another plan than the engine's own; `plans` names both, and the layers, on the
  /// machine `where`. After the first call: nothing.
  void open(const std::string& where, const std::string& plans);
  bool was_opened() const { return was_opened_; }
  bool is_open() const { return is_open_; }
  /// Of the next step.
  bool takes_other() const { return is_open_ ? steps_ % 2 == 1 : other_won_; }
  /// A step has ended. Steps of different sizes cannot be compared: the own plan stays.
  void observe(const ObservedStep& step);

 private:
  void close(bool other_won);

  bool is_open_ = false, was_opened_ = false, other_won_ = false;
  int64_t steps_ = 0, tokens_ = 0;
  double own_ms_ = 0, best_own_ms_ = 0, best_other_ms_ = 0;
  std::string where_, key_;
};

}  // namespace moonshard::privacy
