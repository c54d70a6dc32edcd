#include "runtime/optim/noise.h"

#include <ATen/ATen.h>

#include "kernels/counter_noise/counter_noise.h"
#include "kernels/secure_noise/secure_noise.h"
#include "runtime/sharding/settle_rows.h"

namespace moonshard::optim {

void draw_noise(at::Tensor& target, const NoiseSpec& noise, uint32_t parameter,
                int64_t first_element) {
  if (noise.std == 0) return;
  if (noise.secret != nullptr) {
    kernels::add_secure_noise(target, noise.std, {*noise.secret, noise.step, parameter},
                              first_element);
  } else {
    kernels::add_counter_noise(target, noise.std, {noise.key, noise.step, parameter},
                               first_element);
  }
}

void add_noise(models::Parameter& parameter, int64_t first_element, const NoiseSpec& noise) {
  sharding::settle_rows(parameter);
  if (!noise.updates_all || !parameter.trainable || parameter.value.numel() == 0) return;
  const bool narrow = parameter.value.element_size() < 4;
  if (!parameter.grad.defined()) {
    parameter.grad =
        at::zeros_like(parameter.value, narrow ? parameter.value.options().dtype(at::kFloat)
                                               : parameter.value.options());
    profile::claim(parameter.grad, profile::Owner::Gradients);
  }
  if (noise.std == 0) return;
  // 8-bit noise would be coarser than what it hides.
  if (parameter.grad.element_size() < 4) parameter.grad = parameter.grad.to(at::kFloat);
  parameter.grad = parameter.grad.contiguous();
  draw_noise(parameter.grad, noise, parameter.index, first_element);
}

}  // namespace moonshard::optim
