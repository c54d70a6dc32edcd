// The privacy budget that a run may be given, and how its epsilon is computed. Torch-free.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/options.h"

namespace moonshard::privacy {

struct PrivacyOptions {
  double target_epsilon = 0;
  double delta = 1e-5;
  double epochs = 0;
  int64_t budget_steps = 0;
  std::string accountant = "rdp";
  bool secure = false;
};

template <class T>
void add_privacy_options(OptionSchema& schema) {
  schema.real<T>("target_epsilon", &T::target_epsilon, 0, 1e6,
                 "budget: noise_multiplier is chosen so that the run's steps stay within it; 0 "
                 "leaves noise_multiplier as it is");
  schema.real<T>("delta", &T::delta, 0, 1, "delta of the claimed epsilon");
  schema.real<T>("epochs", &T::epochs, 0, 1e9,
                 "length of the run in passes over the data; 0 counts in steps");
  schema.integer<T>("budget_steps", &T::budget_steps, 0, 1e12,
                    "steps that the budget must last for; 0 takes the epochs");
  schema.choice<T>("accountant", &T::accountant, {"rdp", "prv", "pld"},
                   "how epsilon is computed: all three are guarantees, prv and pld tighter");
  schema.boolean<T>("secure", &T::secure,
                    "noise and sampling from a secret of the operating system, on a grid that "
                    "resists floating-point attacks; slower, and cannot be repeated");
}

}  // namespace moonshard::privacy
