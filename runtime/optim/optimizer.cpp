#include "runtime/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <ATen/ATen.h>

#include "kernels/counter_noise/counter_noise.h"
#include "kernels/secure_noise/secure_noise.h"
#include "runtime/base/check.h"
#include "runtime/base/globs.h"
#include "runtime/optim/narrow_state.h"
#include "runtime/sharding/settle_rows.h"

namespace moonshard::optim {

double learning_rate(const OptimizerOptions& options, int64_t step) {
  if (step <= options.lr_warmup_steps) {
    return options.lr * static_cast<double>(step) / static_cast<double>(options.lr_warmup_steps);
  }
  if (options.lr_schedule == "constant") return options.lr;
  if (options.lr_schedule == "inverse_sqrt") {
    const auto warm_up = static_cast<double>(std::max<int64_t>(1, options.lr_warmup_steps));
    const double left = std::sqrt(warm_up / static_cast<double>(step));
    return options.lr * std::max(left, options.lr_min_ratio);
  }
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

// Words of option no_decay.
const std::map<std::string, std::vector<std::string>>& decay_groups() {
  static const std::map<std::string, std::vector<std::string>> groups{
      {"norms", {"*norm*", "*ln_*"}},
      {"biases", {"*.bias"}},
      {"embeddings", {"*embed*", "*.wte.*", "*.wpe.*"}}};
  return groups;
}

bool is_updated(const models::Parameter& parameter, const NoiseSpec& noise) {
  if (parameter.value.numel() == 0) return false;
  return parameter.grad.defined() || parameter.rows.defined() ||
         (noise.updates_all && parameter.trainable);
}

}  // namespace

std::vector<std::string> no_decay_globs(const std::string& list,
                                        const std::vector<std::string>& names) {
  std::vector<std::string> globs;
  for (const std::string& entry : globs_of(list)) {
    const auto group = decay_groups().find(entry);
    if (group != decay_groups().end()) {
      globs.insert(globs.end(), group->second.begin(), group->second.end());
      continue;
    }
    const bool matches =
        names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
          return matches_any({entry}, name);
        });
    MS_CHECK(matches,
             "optim: option 'no_decay': expected norms, biases, embeddings or globs of parameters, "
             "got '{}', which matches none; model.parameters lists them",
             entry);
    globs.push_back(entry);
  }
  return globs;
}

Optimizer::Optimizer(const OptimizerOptions& options)
    : no_decay_(no_decay_globs(options.no_decay, {})),
      corrects_noise_(options.noise_correction),
      is_narrow_(options.state_dtype == "bfloat16"),
      noise_floor_(options.noise_floor) {
  MS_CHECK(!options.noise_correction || options.optimizer != "sgd",
           "optim: option 'noise_correction': expected optimizer adam or adamw, got sgd, which has "
           "no mean square");
  if (options.optimizer == "sgd") {
    rule_.kind = options.momentum == 0 ? kernels::UpdateKind::Sgd : kernels::UpdateKind::Momentum;
    rule_.momentum = options.momentum;
    if (options.momentum != 0) state_names_ = {"sum"};
    return;
  }
  const bool decoupled = options.optimizer == "adamw";
  rule_.kind = decoupled ? kernels::UpdateKind::AdamW : kernels::UpdateKind::Adam;
  rule_.beta1 = options.beta1;
  rule_.beta2 = options.beta2;
  rule_.eps = options.eps;
  rule_.weight_decay = options.weight_decay >= 0 ? options.weight_decay : decoupled ? 0.1 : 0.0;
  state_names_ = {"mean", "mean_square"};
}

void Optimizer::begin_step(double lr) {
  rule_.lr = lr;
  updated_.clear();
}

at::ScalarType Optimizer::state_type(const models::Parameter& parameter,
                                     at::ScalarType sums) const {
  if (is_narrow_) return at::kBFloat16;
  const at::ScalarType type = parameter.low.defined() ? at::kFloat : parameter.value.scalar_type();
  if (is_adam() || type == at::kDouble) return type;
  return parameter.grad.defined() ? parameter.grad.scalar_type() : sums;
}

void Optimizer::prepare(const std::vector<UpdatedPart>& parts, const NoiseSpec& noise,
                        at::ScalarType sums) {
  if (state_names_.empty()) return;
  for (const UpdatedPart& part : parts) {
    const models::Parameter& parameter = *part.parameter;
    if (!is_updated(parameter, noise)) continue;
    if (states_.contains(parameter.index)) continue;
    const at::ScalarType type = state_type(parameter, sums);
    State made;
    for (size_t i = 0; i < state_names_.size(); ++i)
      made.tensors.push_back(
          at::zeros_like(parameter.value, parameter.value.options().dtype(type)));
    states_[parameter.index] = std::move(made);
  }
}

bool Optimizer::decays(const models::Parameter& parameter) {
  const auto [found, is_new] = decays_.try_emplace(parameter.index, true);
  if (is_new) found->second = !matches_any(no_decay_, parameter.name);
  return found->second;
}

void Optimizer::update(const std::vector<UpdatedPart>& parts, const NoiseSpec& noise) {
  std::vector<kernels::UpdatePart> list, undecayed;
  std::unique_lock lock(mutex_);
  prepare(parts, noise);
  for (const UpdatedPart& part : parts) {
    const models::Parameter& parameter = *part.parameter;
    if (!is_updated(parameter, noise)) continue;
    const bool is_first = updated_.insert(parameter.index).second;
    MS_ASSERT(is_first, "'{}' is updated twice in one step", parameter.name);
    const bool is_plain = rule_.weight_decay == 0 || no_decay_.empty() || decays(parameter);
    kernels::UpdatePart& told = (is_plain ? list : undecayed).emplace_back();
    told.value = parameter.value;
    told.low = parameter.low;
    told.grad = parameter.grad;
    told.rows = parameter.rows;
    told.row_factors = parameter.row_factors;
    told.parameter = parameter.index;
    told.first_element = part.first_element;
    if (state_names_.empty()) continue;
    State& state = states_[parameter.index];
    ++state.updates;
    told.steps = state.updates;
    told.first_moment = state.tensors[0];
    if (is_adam()) told.second_moment = state.tensors[1];
  }
  lock.unlock();
  kernels::UpdateRule rule = rule_;
  if (corrects_noise_ && noise.variance > 0) {
    rule.noise_variance = noise.variance;
    rule.noise_floor = noise_floor_ > 0 ? noise_floor_ : noise.variance / 100;
  }
  const kernels::UpdateNoise drawn{noise.std, noise.denominator, noise.key, noise.step,
                                   noise.secret.get()};
  if (!list.empty()) apply(list, rule, drawn);
  rule.weight_decay = 0;
  if (!undecayed.empty()) apply(undecayed, rule, drawn);
}

void Optimizer::apply(std::vector<kernels::UpdatePart>& parts, const kernels::UpdateRule& rule,
                      const kernels::UpdateNoise& noise) const {
  if (is_narrow_ && !state_names_.empty()) {
    update_narrow_states(parts, rule, noise);
  } else {
    kernels::fused_update(parts, rule, noise);
  }
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

int64_t Optimizer::state_bytes() const {
  int64_t total = 0;
  for (const auto& [index, state] : states_)
    for (const at::Tensor& tensor : state.tensors) total += static_cast<int64_t>(tensor.nbytes());
  return total;
}

ParameterState Optimizer::state(const models::Parameter& parameter) const {
  const auto found = states_.find(parameter.index);
  if (found == states_.end() || found->second.updates == 0) return {};
  ParameterState state;
  state.steps = counts_updates() ? found->second.updates : 0;
  for (size_t i = 0; i < state_names_.size(); ++i)
    state.tensors.emplace_back(state_names_[i], found->second.tensors[i]);
  return state;
}

void Optimizer::set_state(const models::Parameter& parameter, const ParameterState& state) {
  if (state.tensors.empty()) return;
  State& own = states_[parameter.index];
  own.tensors.resize(state_names_.size());
  for (const auto& [name, tensor] : state.tensors)
    own.tensors[name == state_names_[0] ? 0 : 1] = tensor;
  own.updates = counts_updates() ? state.steps : 1;
}

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
