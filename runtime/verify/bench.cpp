#include "runtime/verify/bench.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <optional>

#include "kernels/counter_noise/counter_noise.h"
#include "kernels/secure_noise/secure_noise.h"
#include "kernels/split_float/split_float.h"
#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/models/registry.h"
#include "runtime/sharding/unit.h"
#include "runtime/sharding/wrap_policy.h"
#include "runtime/train/trainer.h"
#include "runtime/verify/subject_data.h"

namespace moonshard::verify {
namespace {

// While it lives, values are rounded to the dtypes of their layers. Under fsdp a unit is gathered
// in that dtype, so that Gemma's norms, which multiply by 1 + weight, add 1 to a rounded weight.
class AsGathered {
 public:
  explicit AsGathered(models::Model& model) {
    for (const auto& layer : model.layers()) {
      for (models::Parameter* parameter : {layer->weight, layer->bias}) {
        if (parameter == nullptr || !kept_.emplace(parameter, parameter->value).second) continue;
        parameter->value = rounded(parameter->value, layer->compute_type());
      }
    }
  }
  ~AsGathered() {
    for (auto& [parameter, value] : kept_) parameter->value = value;
  }
  AsGathered(const AsGathered&) = delete;
  AsGathered& operator=(const AsGathered&) = delete;

 private:
  // As master weights in halves are: a tie goes away from zero, where a cast goes to even.
  static at::Tensor rounded(const at::Tensor& value, at::ScalarType type) {
    if (!sharding::splits_master_weights(value.scalar_type(), type))
      return value.to(type).to(value.scalar_type());
    at::Tensor high = at::empty_like(value, type), low = at::empty_like(value, at::kShort);
    kernels::split_float(value, high, low);
    return high.to(value.scalar_type());
  }

  std::map<models::Parameter*, at::Tensor> kept_;
};

}  // namespace

Bench::Bench(const VerifyOptions& options, const Subject& subject, const Variant& variant,
             const Format& format, std::shared_ptr<comm::World> world)
    : CaseParts(options, subject, variant, format, std::move(world)) {
  models::ModelOptions model = model_options(options);
  variant.apply(model, clip_, step_);
  if (variant.apply_sharding != nullptr) variant.apply_sharding(sharding_);
  shrink(variant, model, sharding_.parallel != "none");
  model_ = models::make_model(model);
  if (sharding_.parallel != "none") sharding::set_compute_types(*model_, sharding_);
  move_off_zero(*model_);
  batch_ = make_batch(*model_, variant);
  plan_steps();
  optimizer_.optimizer = variant.optimizer;
  // Large, so that errors of gradients show in the weights; over several such steps the network
  // would amplify rounding errors of the first.
  optimizer_.lr = plan_.size() == 1 ? 0.5 : 0.02;
  if (variant.optimizer == "adam") optimizer_.weight_decay = 0.03;  // adamw has one by default
  groups_ = groups_of(*model_);
  for (const auto& parameter : model_->parameters()) start_.push_back(parameter->value.clone());
  choose_bound(reference_gradients(batch_, 0));
}

Bench::~Bench() = default;

std::string Bench::case_of(const Group& group) const {
  return layer_case(*model_, *group.layers[0]);
}

void Bench::plan_steps() {
  if (variant_.draws) return plan_draws();
  PlannedStep step{batch_};
  const auto parts = train::micro_batches(batch_, world_->size());
  for (int rank = 0; rank < world_->rank(); ++rank)
    step.first += parts[static_cast<size_t>(rank)].size();
  step.count = parts[static_cast<size_t>(world_->rank())].size();
  // In 16-bit computation a second step starts from weights whose last digit differs, and a single
  // different rounding early in the network changes all gradients by about 1e-2. A secret is known
  // when the trainer has been made, and then the model may be in parts: one step.
  const bool one_step = format_.name == "bfloat16" || variant_.secret;
  const bool several = sharding_.parallel != "none" || variant_.optimizer != "sgd";
  plan_.assign(several && !one_step ? 3 : 1, step);
}

// Four steps from a seed that draws an empty one (plain training has none) and a large one, as a
// sampler of the same words chooses them; ranks take every world-th sample. That samplers draw by
// their law is tested with them.
void Bench::plan_draws() {
  loader_ = {"poisson", /*batch_size=*/2, /*grad_accum=*/1, /*expected_batch_size=*/2,
             /*prefetch=*/1};
  loader_.pad_batches = variant_.fills_up;
  for (draw_seed_ = static_cast<uint64_t>(model_->options().seed);; ++draw_seed_) {
    const auto sampler = data::make_sampler({"poisson", batch_.size(), loader_.expected_batch_size},
                                            RandomWords(draw_seed_));
    plan_.clear();
    bool has_empty = false, has_large = false;
    for (int64_t index = 0; index < 4; ++index) {
      const std::vector<int64_t> drawn = sampler->examples_of(index);
      has_empty = has_empty || drawn.empty();
      has_large = has_large || drawn.size() > 3;
      PlannedStep step;
      std::vector<int64_t> in_order;
      for (int64_t rank = 0; rank < world_->size(); ++rank) {
        if (rank == world_->rank()) step.first = static_cast<int64_t>(in_order.size());
        for (size_t i = static_cast<size_t>(rank); i < drawn.size();
             i += static_cast<size_t>(world_->size()))
          in_order.push_back(drawn[i]);
        if (rank == world_->rank()) step.count = static_cast<int64_t>(in_order.size()) - step.first;
      }
      step.batch = chosen_samples(batch_, in_order);
      plan_.push_back(std::move(step));
    }
    if (has_empty == variant_.private_only && has_large) return;
  }
}

void Bench::restore_start() {
  for (size_t i = 0; i < start_.size(); ++i) model_->parameters()[i]->value = start_[i].clone();
}

// As the model prepares the samples in this step.
PerSample Bench::reference_gradients(const Batch& given, int64_t step) {
  const DeterminismGuard determinism(true);
  const Batch batch =
      given.size() == 0 ? given : model_->prepare(given, model_->seed_words(), step);
  if (format_.name != "bfloat16") return batch_of_one_gradients(*model_, batch);
  std::optional<AsGathered> gathered;
  if (sharding_.parallel == "fsdp") gathered.emplace(*model_);
  if (variant_.own_pass) return float64_gradients(*model_, batch);
  std::vector<Batch> micro;
  for (const Batch& of_rank : train::micro_batches(batch, world_->size()))
    for (const Batch& part : train::micro_batches(of_rank, step_.grad_accum))
      if (part.size() > 0) micro.push_back(part);
  return layerwise_gradients(*model_, micro);
}

// Between the middle norms, so that about half of the samples are clipped.
void Bench::choose_bound(const PerSample& gradients) {
  if (clip_.clipping == "groups") {
    choose_group_bounds(gradients);
    bound_ = total_bound(gradients);
    return;
  }
  std::vector<std::string> all;
  for (const auto& [name, rows] : gradients) all.push_back(name);
  at::Tensor norms = norms_of(gradients, all);
  if (clip_.clipping == "per_layer") {
    std::vector<at::Tensor> parts;
    for (const Group& group : groups_) parts.push_back(norms_of(gradients, group.parameters));
    norms = at::cat(parts) * std::sqrt(static_cast<double>(groups_.size()));
  }
  bound_ = clip_.max_grad_norm = middle_of(norms);
}

double Bench::denominator(size_t index) const {
  if (variant_.draws) return static_cast<double>(loader_.expected_batch_size);
  return static_cast<double>(step_.expected_batch_size > 0 ? step_.expected_batch_size
                                                           : plan_[index].batch.size());
}

// By definition, from the weights that the model has now.
Bench::ExpectedStep Bench::expected_step(size_t index, const privacy::ClipOptions& clip,
                                         bool is_private, const kernels::ChaChaKey* secret) {
  ExpectedStep step;
  const PerSample gradients = reference_gradients(plan_[index].batch, static_cast<int64_t>(index));
  step.bound = step.bound_after = clip.clipping == "groups" ? bound_ : clip.max_grad_norm;
  if (is_private) {
    step.clipping = expected_clipping(gradients, groups_, clip);
    for (const auto& [name, sum] : step.clipping.clipped) step.gradient[name] = sum.clone();
    add_expected_noise(step, index, clip, secret);
  } else {
    for (const auto& [name, rows] : gradients) step.gradient[name] = rows.sum(0);
  }
  for (auto& [name, gradient] : step.gradient) gradient = gradient / denominator(index);
  return step;
}

// Drawn again by its address, for whole parameters; that it is normally distributed and that no
// address comes twice is tested with the kernels and the trainer. Also moves the adaptive bound.
void Bench::add_expected_noise(ExpectedStep& step, size_t index, const privacy::ClipOptions& clip,
                               const kernels::ChaChaKey* secret) const {
  const auto draw = [&](at::Tensor& target, double std, uint32_t parameter) {
    if (std == 0) return;
    const auto number = static_cast<uint32_t>(index + 1);
    if (secret != nullptr) {
      kernels::add_secure_noise(target, std, {*secret, number, parameter});
    } else {
      kernels::add_counter_noise(
          target, std, {static_cast<uint64_t>(model_->options().seed), number, parameter});
    }
  };
  const bool adaptive = clip.clipping == "adaptive";
  double multiplier = clip.noise_multiplier;
  const double count_std = multiplier == 0 ? 0 : denominator(index) / 20;
  // Both releases together cost what the multiplier alone would: 1/z^2 = 1/z_sum^2 + 1/(2 std)^2,
  // where a sample moves the count by one half.
  if (adaptive && multiplier > 0)
    multiplier = std::pow(std::pow(multiplier, -2) - std::pow(2 * count_std, -2), -0.5);
  for (auto& [name, sum] : step.gradient) {
    const models::Parameter& parameter = model_->parameter(name);
    if (secret != nullptr) {  // the grid is the sum's and not the noise's
      draw(sum, multiplier * step.bound, parameter.index);
      continue;
    }
    const auto wide = parameter.value.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor noise = at::zeros(sum.sizes(), sum.options().dtype(wide));
    draw(noise, multiplier * step.bound, parameter.index);
    sum = sum + noise.to(at::kDouble);
  }
  if (!adaptive) return;
  const at::Tensor& norms = step.clipping.norms;
  at::Tensor half_sum =
      at::full({1}, norms.le(clip.max_grad_norm).sum().item<double>(), at::kDouble) -
      0.5 * static_cast<double>(norms.numel());
  draw(half_sum, count_std, kernels::kPurposeClipCount);
  const double share = half_sum.item<double>() / denominator(index) + 0.5;
  step.bound_after = step.bound * std::exp(-clip.quantile_lr * (share - clip.target_quantile));
}

// What one process must find in each step: starts from the expected weights of the step before, not
// from those of an engine.
const std::vector<Bench::ExpectedStep>& Bench::trajectory(bool is_private) {
  std::vector<ExpectedStep>& steps = trajectories_[is_private];
  if (!steps.empty()) return steps;
  restore_start();
  std::vector<at::Tensor> exact;  // weights without the rounding of their dtype
  for (const at::Tensor& value : start_) exact.push_back(value.to(at::kDouble));
  ReferenceOptimizer optimizer(optimizer_);
  privacy::ClipOptions clip = clip_;
  for (size_t k = 0; k < plan_.size(); ++k) {
    ExpectedStep step = expected_step(k, clip, is_private, nullptr);
    if (clip.clipping != "groups") clip.max_grad_norm = step.bound_after;
    for (const auto& [name, gradient] : step.gradient) {
      at::Tensor& weights = exact[model_->parameter(name).index];
      weights = optimizer.updated(name, weights, gradient);
    }
    for (const auto& parameter : model_->parameters()) {
      step.weights.push_back(exact[parameter->index]);
      parameter->value = exact[parameter->index].to(parameter->value.scalar_type());
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

// The one step of a trainer whose secret is known by now.
Bench::ExpectedStep Bench::secret_step(const kernels::ChaChaKey* secret) {
  ExpectedStep step = trajectory(true).front();
  for (const auto& [name, sum] : step.clipping.clipped) step.gradient[name] = sum.clone();
  add_expected_noise(step, 0, clip_, secret);
  for (auto& [name, gradient] : step.gradient) {
    gradient = gradient / denominator(0);
    const uint32_t index = model_->parameter(name).index;
    step.weights[index] = start_[index].to(at::kDouble) - gradient * optimizer_.lr;
  }
  return step;
}

std::vector<Cell> Bench::run(const std::string& engine, const Observer& observer) {
  trajectory(engine != "none");
  restore_start();
  WorstByCase worst;
  const std::string error = error_of([&] { compare(engine, worst, observer); });
  if (!error.empty()) {
    for (const Group& group : groups_) worst[case_of(group)].add(NAN, "an error");
    worst["all"].add(NAN, "an error");
  }
  merge_over_ranks(*world_, worst);
  const OwnPassTolerance own_pass = own_pass_tolerance(*model_);
  std::vector<Cell> cells;
  for (const auto& [layer, found] : worst) {
    const double tolerance = !variant_.own_pass ? format_.tolerance
                             : layer == "all"   ? own_pass.norms
                                                : own_pass.sums;
    cells.push_back(cell(engine, layer, found, tolerance, error));
  }
  return cells;
}

}  // namespace moonshard::verify
