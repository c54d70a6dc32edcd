#include "runtime/optim/narrow_state.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/coin_rounding/coin_rounding.h"

namespace moonshard::optim {
namespace {

constexpr int64_t kSlice = int64_t{1} << 22;

at::Tensor slice_of(const at::Tensor& tensor, int64_t first, int64_t count) {
  return tensor.defined() ? tensor.reshape({-1}).narrow(0, first, count) : tensor;
}

// A range of a part's elements, as views.
kernels::UpdatePart slice_of(const kernels::UpdatePart& part, int64_t first, int64_t count) {
  kernels::UpdatePart slice = part;
  slice.value = part.value.view({-1}).narrow(0, first, count);
  if (part.low.defined()) slice.low = part.low.view({-1}).narrow(0, first, count);
  slice.grad = slice_of(part.grad, first, count);
  if (part.rows.defined()) slice.rows = part.rows.flatten(1).narrow(1, first, count);
  slice.first_moment = slice_of(part.first_moment, first, count);
  slice.second_moment = slice_of(part.second_moment, first, count);
  slice.first_element = part.first_element + first;
  return slice;
}

// Slices that are updated together.
class Slices {
 public:
  Slices(const kernels::UpdateRule& rule, const kernels::UpdateNoise& noise)
      : rule_(rule), noise_(noise) {}

  void add(const kernels::UpdatePart& slice) {
    own_.push_back(slice);
    elements_ += slice.value.numel();
    if (elements_ >= kSlice) update();
  }

  void update() {
    if (own_.empty()) return;
    std::vector<kernels::UpdatePart> wide = own_;
    for (kernels::UpdatePart& part : wide) {
      const at::ScalarType type =
          part.value.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      if (!part.low.defined()) part.value = part.value.to(type);
      part.first_moment = part.first_moment.to(type);
      if (part.second_moment.defined()) part.second_moment = part.second_moment.to(type);
    }
    kernels::fused_update(wide, rule_, noise_);
    for (size_t i = 0; i < own_.size(); ++i) {
      const kernels::UpdatePart& part = own_[i];
      if (!wide[i].value.is_same(part.value)) part.value.copy_(wide[i].value);
      std::vector<kernels::Rounded> states{{part.first_moment, wide[i].first_moment}};
      if (part.second_moment.defined())
        states.push_back({part.second_moment, wide[i].second_moment});
      kernels::round_by_coin(states,
                             {noise_.key, static_cast<uint64_t>(part.steps), part.parameter},
                             part.first_element);
    }
    own_.clear();
    elements_ = 0;
  }

 private:
  kernels::UpdateRule rule_;
  kernels::UpdateNoise noise_;
  std::vector<kernels::UpdatePart> own_;  ///< with states as they are kept
  int64_t elements_ = 0;
};

}  // namespace

void update_narrow_states(const std::vector<kernels::UpdatePart>& parts,
                          const kernels::UpdateRule& rule, const kernels::UpdateNoise& noise) {
  Slices slices(rule, noise);
  for (const kernels::UpdatePart& part : parts) {
    const int64_t count = part.value.numel();
    for (int64_t first = 0; first < count; first += kSlice)
      slices.add(slice_of(part, first, std::min(kSlice, count - first)));
  }
  slices.update();
}

}  // namespace moonshard::optim
