// A stack of Linear layers has no options of its own. Torch-free.
#pragma once

#include <memory>

#include "runtime/models/family_description.h"

namespace moonshard::models {

struct LinearEntry {
  struct Options {};

  static FamilyDescription describe() {
    return {"linear",
            {{"regress", "a vector", {"inputs", "targets"}}},
            {},
            {"hidden_dim", "num_layers"}};
  }
  static std::unique_ptr<Family> make();

  template <class T>
  static void add_options(OptionSchema&) {}
};

}  // namespace moonshard::models
