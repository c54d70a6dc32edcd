#include "runtime/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/base/check.h"
#include "runtime/optim/adam.h"
#include "runtime/optim/noise.h"
#include "runtime/optim/sgd.h"

namespace moonshard::optim {

double learning_rate(const OptimizerOptions& options, int64_t step) {
  if (step <= options.lr_warmup_steps) {
    return options.lr * static_cast<double>(step) / static_cast<double>(options.lr_warmup_steps);
  }
  if (options.lr_schedule == "constant") return options.lr;
  MS_CHECK(options.lr_total_steps > options.lr_warmup_steps,
           "optim: lr_schedule {} expects lr_total_steps above lr_warmup_steps = {}, got {}",
           options.lr_schedule, options.lr_warmup_steps, options.lr_total_steps);
  const double done =
      std::min(1.0, static_cast<double>(step - options.lr_warmup_steps) /
                        static_cast<double>(options.lr_total_steps - options.lr_warmup_steps));
  const double left =
      options.lr_schedule == "linear" ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2;
  return options.lr * (options.lr_min_ratio + (1 - options.lr_min_ratio) * left);
}

namespace {

bool is_updated(const models::Parameter& parameter, const NoiseSpec& noise) {
  if (parameter.value.numel() == 0) return false;
  return parameter.grad.defined() || parameter.rows.defined() ||
         (noise.updates_all && parameter.trainable);
}

}  // namespace

void Optimizer::begin_step(double lr) {
  lr_ = lr;
  updated_.clear();
}

void Optimizer::prepare(const std::vector<UpdatedPart>& parts, const NoiseSpec& noise,
                        at::ScalarType sums) {
  for (const UpdatedPart& part : parts) {
    if (!is_updated(*part.parameter, noise)) continue;
    const at::Tensor& grad = part.parameter->grad;
    make_state(*part.parameter, grad.defined() ? grad.scalar_type() : sums);
  }
}

void Optimizer::update(const std::vector<UpdatedPart>& parts, const NoiseSpec& noise) {
  prepare(parts, noise);
  // Secret noise is a separate pass: the update's noise can be reproduced by anybody with the seed.
  const bool is_secret = noise.secret != nullptr && noise.std > 0;
  if (is_secret)
    for (const UpdatedPart& part : parts) add_noise(*part.parameter, part.first_element, noise);
  std::vector<kernels::UpdatePart> list;
  for (const UpdatedPart& part : parts) {
    const models::Parameter& parameter = *part.parameter;
    if (!is_updated(parameter, noise)) continue;
    const bool is_first = updated_.insert(parameter.index).second;
    MS_ASSERT(is_first, "'{}' is updated twice in one step", parameter.name);
    kernels::UpdatePart& told = list.emplace_back();
    told.value = parameter.value;
    told.grad = parameter.grad;
    told.rows = parameter.rows;
    told.row_factors = parameter.row_factors;
    told.parameter = parameter.index;
    told.first_element = part.first_element;
    use_state(parameter, told);
  }
  kernels::UpdateRule how = rule();
  how.lr = lr_;
  kernels::fused_update(list, how,
                        {is_secret ? 0 : noise.std, noise.denominator, noise.key, noise.step});
}

void Optimizer::end_step() {
  updated_.clear();
}

void Optimizer::step(const std::vector<std::unique_ptr<models::Parameter>>& parameters, double lr) {
  begin_step(lr);
  std::vector<UpdatedPart> parts;
  for (const auto& parameter : parameters) parts.push_back({parameter.get(), 0});
  update(parts, {});
  end_step();
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  if (options.optimizer == "sgd") return std::make_unique<Sgd>(options);
  return std::make_unique<Adam>(options);
}

}  // namespace moonshard::optim
