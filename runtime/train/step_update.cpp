#include "runtime/train/step_update.h"

#include <algorithm>
#include <map>

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
      is_done_(parallel.updated().size(), 0),
      has_noise_(parallel.updated().size(), 0) {
  optimizer_.begin_step(lr);
  if (!parallel_.works_beside() || noise_.std == 0) return;
  for (size_t i = 0; i < parallel_.updated().size(); ++i) places_[parallel_.updated()[i].get()] = i;
  parallel_.on_leaving([this](const models::Parameter& part, at::Tensor& gradient) {
    add_noise_early(part, gradient);
  });
}

StepUpdate::~StepUpdate() {
  if (!places_.empty()) parallel_.on_leaving({});
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
  const auto on_device = std::find_if(updated.begin(), updated.end(),
                                      [](const auto& part) { return part->value.is_cuda(); });
  if (others_follow && on_device != updated.end()) {
    int64_t held =
        0;  // by the first unit, as sums or as rows, which are no less: the next have that
    for (const auto& part : updated)
      if (part->grad.defined() || part->rows.defined()) held += part->value.numel();
    const int64_t missing = parallel_.most_completed() - held;
    if (missing > 0) at::empty({missing}, (*on_device)->value.options().dtype(sums_));
  }
  hold_.emplace();
  half_done_ = true;
}

void StepUpdate::apply(const std::string& unit, const std::vector<size_t>& parts,
                       profile::PhaseTimer& timer) {
  if (parallel_.is_beside(parts.front())) {
    begin(/*others_follow=*/true);
    parallel_.work_beside([this, unit, own = taken(parts)] {
      const auto timeline = profile::recording_timeline();
      const size_t span =
          timeline != nullptr ? timeline->begin("update", "update " + unit, /*on_host=*/true) : 0;
      update(own);
      if (timeline != nullptr) timeline->end(span);
    });
    return;
  }
  const profile::PhaseTimer::Inside phase(timer, "update");
  const profile::Zone zone("update", "update " + unit);
  begin(/*others_follow=*/true);
  update(taken(parts));
}

void StepUpdate::apply_rest() {
  begin(/*others_follow=*/false);
  parallel_.wait_for_work();
  std::vector<size_t> rest;
  for (size_t i = 0; i < is_done_.size(); ++i)
    if (is_done_[i] == 0) rest.push_back(i);
  if (!rest.empty()) update(taken(rest));
  optimizer_.end_step();
}

std::vector<size_t> StepUpdate::taken(const std::vector<size_t>& parts) {
  MS_ASSERT(!closed_, "noise in a captured step: every replay would repeat it");
  for (const size_t i : parts) {
    MS_ASSERT(is_done_[i] == 0, "'{}' is updated twice in one step", parallel_.updated()[i]->name);
    is_done_[i] = 1;
  }
  return parts;
}

void StepUpdate::add_noise_early(const models::Parameter& part, at::Tensor& gradient) {
  MS_ASSERT(!closed_, "noise in a captured step: every replay would repeat it");
  const at::NoGradGuard no_grad;
  const size_t place = places_.at(&part);
  MS_ASSERT(has_noise_[place] == 0, "'{}' gets noise twice in one step", part.name);
  optim::draw_noise(gradient, noise_, part.index, parallel_.first_element(place));
  has_noise_[place] = 1;
}

void StepUpdate::update(const std::vector<size_t>& parts) {
  const at::NoGradGuard no_grad;
  const profile::OwnerScope work(profile::Owner::StepTemporaries);
  optim::NoiseSpec drawn = noise_;
  drawn.std = 0;
  // Together what is in one place and has the same noise still to come.
  std::map<std::pair<c10::DeviceType, bool>, std::vector<optim::UpdatedPart>> lists;
  for (const size_t i : parts) {
    models::Parameter& part = *parallel_.updated()[i];
    lists[{part.value.device().type(), has_noise_[i] != 0}].push_back(
        {&part, parallel_.first_element(i)});
  }
  for (const auto& [key, list] : lists) {
    optimizer_.update(list, key.second ? drawn : noise_);
    for (const optim::UpdatedPart& part : list) sharding::forget_gradient(*part.parameter);
  }
}

}  // namespace moonshard::train
