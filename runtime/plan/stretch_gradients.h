// Gradients by the stretch whose backward has formed them: they belong to the stretch's first unit,
// and a unit is complete where its backward ends. Torch-free.
#pragma once

#include <vector>

#include "runtime/plan/gather_walk.h"
#include "runtime/plan/gradient_walk.h"

namespace moonshard::plan {

class StretchGradients {
 public:
  StretchGradients(const std::vector<PlannedUnit>& units, const GatherWalk& gathers,
                   GradientWalk& gradients)
      : units_(units), gathers_(gathers), gradients_(gradients) {}

  void form(size_t stretch, double bytes) {
    if (!gathers_.units_of(stretch).empty())
      gradients_.form(gathers_.units_of(stretch).front(), bytes);
  }
  void reduce_finished(size_t stretch) {
    for (const size_t u : gathers_.units_of(stretch))
      if (stretch == units_[u].backward_ends_at) gradients_.complete(u);
  }

 private:
  const std::vector<PlannedUnit>& units_;
  const GatherWalk& gathers_;
  GradientWalk& gradients_;
};

}  // namespace moonshard::plan
