#include "runtime/train/step_update.h"

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/profile/ledger.h"
#include "runtime/profile/timeline.h"
#include "runtime/sharding/settle_rows.h"

namespace moonshard::train {

StepUpdate::StepUpdate(sharding::Parallel& parallel, optim::Optimizer& optimizer,
                       const optim::NoiseSpec& noise, at::ScalarType sums, double lr,
                       bool& half_done)
    : parallel_(parallel),
      optimizer_(optimizer),
      noise_(noise),
      sums_(sums),
      half_done_(half_done),
      is_done_(parallel.updated().size(), false) {
  optimizer_.begin_step(lr);
}

void StepUpdate::begin(bool others_follow) {
  if (hold_) return;
  const auto& updated = parallel_.updated();
  std::vector<optim::UpdatedPart> all;
  for (const auto& part : updated) all.push_back({part.get(), 0});
  {
    const profile::OwnerScope states(profile::Owner::OptimizerState);
    optimizer_.prepare(all, noise_, sums_);
  }
  // Taken and given back: the allocator keeps it, and units to come find it.
  if (others_follow && updated.front()->value.is_cuda()) {
    int64_t held = 0;  // by the first unit: the next have that, too
    for (const auto& part : updated)
      if (part->grad.defined()) held += part->grad.numel();
    const int64_t missing = parallel_.most_completed() - held;
    if (missing > 0) at::empty({missing}, updated.front()->value.options().dtype(sums_));
  }
  hold_.emplace();
  half_done_ = true;
}

void StepUpdate::apply(const std::string& unit, const std::vector<size_t>& parts,
                       profile::PhaseTimer& timer) {
  const profile::PhaseTimer::Inside phase(timer, "update");
  const profile::Zone zone("update", "update " + unit);
  begin(/*others_follow=*/true);
  update(parts);
}

void StepUpdate::apply_rest() {
  begin(/*others_follow=*/false);
  std::vector<size_t> rest;
  for (size_t i = 0; i < is_done_.size(); ++i)
    if (!is_done_[i]) rest.push_back(i);
  if (!rest.empty()) update(rest);
  optimizer_.end_step();
}

void StepUpdate::update(const std::vector<size_t>& parts) {
  MS_ASSERT(!closed_, "noise in a captured step: every replay would repeat it");
  const at::NoGradGuard no_grad;
  const profile::OwnerScope work(profile::Owner::StepTemporaries);
  std::vector<optim::UpdatedPart> list;
  for (const size_t i : parts) {
    MS_ASSERT(!is_done_[i], "'{}' is updated twice in one step", parallel_.updated()[i]->name);
    is_done_[i] = true;
    list.push_back({parallel_.updated()[i].get(), parallel_.first_element(i)});
  }
  optimizer_.update(list, noise_);
  for (const optim::UpdatedPart& part : list) sharding::forget_gradient(*part.parameter);
}

}  // namespace moonshard::train
