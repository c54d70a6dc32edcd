#include "runtime/accountant/gaussian_phase.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"

namespace moonshard::accountant {

void check_phases(const char* where, const std::vector<GaussianPhase>& phases, double delta) {
  MS_CHECK(delta > 0 && delta < 1,
           "{}: expected delta above 0 and below 1, got {}; 1 / samples or less is usual", where,
           delta);
  for (size_t i = 0; i < phases.size(); ++i) {
    const GaussianPhase& phase = phases[i];
    MS_CHECK(phase.q >= 0 && phase.q <= 1,
             "{}: phase {}: expected a sampling rate q from 0 to 1, got {}; it is batch size over "
             "samples",
             where, i + 1, phase.q);
    MS_CHECK(phase.sigma >= 0 && std::isfinite(phase.sigma),
             "{}: phase {}: expected a finite noise multiplier sigma of at least 0, got {}", where,
             i + 1, phase.sigma);
    MS_CHECK(phase.steps >= 0 && std::isfinite(phase.steps),
             "{}: phase {}: expected a finite number of steps of at least 0, got {}", where, i + 1,
             phase.steps);
    MS_CHECK(std::floor(phase.steps) == phase.steps,
             "{}: phase {}: expected a whole number of steps, got {}", where, i + 1, phase.steps);
  }
}

std::vector<GaussianPhase> merged(const std::vector<GaussianPhase>& phases) {
  std::vector<GaussianPhase> list;
  for (const GaussianPhase& phase : phases) {
    if (phase.steps > 0 && phase.q > 0) list.push_back(phase);
  }
  std::stable_sort(list.begin(), list.end(), [](const GaussianPhase& a, const GaussianPhase& b) {
    return a.q != b.q ? a.q < b.q : a.sigma < b.sigma;
  });
  size_t kept = 0;
  for (size_t i = 1; i < list.size(); ++i) {
    if (list[kept].q == list[i].q && list[kept].sigma == list[i].sigma) {
      list[kept].steps += list[i].steps;
    } else {
      list[++kept] = list[i];
    }
  }
  if (!list.empty()) list.resize(kept + 1);
  return list;
}

}  // namespace moonshard::accountant
