#include "runtime/verify/bench.h"

#include <ATen/ATen.h>

#include <cmath>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/core/device.h"
#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"

namespace moonshard::verify {
namespace {

// Large, so that errors of gradients show in the weights; over several such steps the network
// would amplify rounding errors of the first.
double learning_rate(size_t num_steps) {
  return num_steps == 1 ? 0.5 : 0.02;
}

// Quantities that are compared. Ranks exchange the index in this list.
constexpr const char* kWhat[] = {"nothing",
                                 "norm",
                                 "factor",
                                 "clipped sum",
                                 "weights",
                                 "bound after the step",
                                 "frozen weights",
                                 "norm missing",
                                 "an error",
                                 "gathered norm",
                                 "gathered norms differ between ranks"};

double relative_error(const at::Tensor& got, const at::Tensor& want) {
  const double size = want.norm().item<double>();
  return (got.to(want.device(), at::kDouble) - want).norm().item<double>() / std::max(size, 1e-300);
}

double largest_relative_error(const at::Tensor& got, const at::Tensor& want) {
  if (got.sizes() != want.sizes()) return INFINITY;
  if (want.numel() == 0) return 0;
  return ((got.to(want.device(), at::kDouble) - want).abs() / want.abs().clamp_min(1e-300))
      .max()
      .item<double>();
}

Batch make_batch(const models::Model& model, const Variant& variant) {
  data::SyntheticData source(model.options(), variant.batch_size, variant.seq_length);
  Batch batch = source.next();
  if (!batch.input_ids.defined()) return batch;
  // Few different ids, so that most of them repeat within a sample. 0 is the padding id.
  batch.input_ids = batch.input_ids.remainder(5) + 1;
  const bool is_lm = batch.labels.dim() == 2;  // a label per token
  if (is_lm) {
    batch.labels = at::full_like(batch.input_ids, -100);
    const int64_t last = variant.seq_length - 1;
    batch.labels.narrow(1, 0, last).copy_(batch.input_ids.narrow(1, 1, last));
  }
  if (!variant.padded) return batch;
  for (int64_t b = 0; b < batch.size(); ++b) {
    const int64_t length = variant.seq_length - b % 4;
    batch.attention_mask[b].slice(0, length).fill_(false);
    batch.input_ids[b].slice(0, length).fill_(0);
    if (is_lm) batch.labels[b].slice(0, length - 1).fill_(-100);
    // And once in the middle: the row takes no part wherever the id stands.
    batch.input_ids[b][1] = 0;
  }
  return batch;
}

// Zero-initialised parameters (adaLN-Zero, biases) would hide errors in what they multiply.
void move_off_zero(models::Model& model) {
  for (const auto& parameter : model.parameters()) {
    kernels::add_counter_noise(parameter->value, 0.05, {99, 7, parameter->index});
  }
}

}  // namespace

// Largest error so far and its quantity.
struct Bench::Worst {
  double error = 0;
  int64_t what = 0;
  void add(double candidate, const char* name) {
    if (candidate <= error) return;  // not true for NaN, which must count
    error = std::isnan(candidate) ? std::numeric_limits<double>::infinity() : candidate;
    for (size_t i = 0; i < std::size(kWhat); ++i)
      if (std::string_view(kWhat[i]) == name) what = static_cast<int64_t>(i);
  }
};

Bench::Bench(const VerifyOptions& options, const Subject& subject, const Variant& variant,
             const Format& format, std::shared_ptr<comm::World> world)
    : subject_(subject),
      variant_(variant),
      format_(format),
      world_(std::move(world)),
      sharding_(options.sharding),
      hooks_(options.hooks) {
  models::ModelOptions model;
  model.model = subject.model;
  model.task = subject.task;
  model.device = options.device;
  model.dtype = format.dtype;
  model.param_dtype = format.param_dtype;
  model.seed = options.seed;
  clip_.noise_multiplier = 0;
  step_.deterministic = true;
  variant.apply(model, clip_, step_);
  if (variant.apply_sharding != nullptr) variant.apply_sharding(sharding_);
  shrink(variant, model, sharding_.parallel != "none");
  model_ = models::make_model(model);
  move_off_zero(*model_);
  batch_ = make_batch(*model_, variant);
  const auto parts = train::micro_batches(batch_, world_->size());
  for (int rank = 0; rank < world_->rank(); ++rank)
    first_ += parts[static_cast<size_t>(rank)].size();
  count_ = parts[static_cast<size_t>(world_->rank())].size();
  // In 16-bit computation a second step starts from weights whose last digit differs, and a single
  // different rounding early in the network changes all gradients by about 1e-2.
  num_steps_ = sharding_.parallel == "none" || format.name == "bfloat16" ? 1 : 3;
  groups_ = groups_of(*model_);
  for (const auto& parameter : model_->parameters()) start_.push_back(parameter->value.clone());
  choose_bound(reference_gradients(model_->prepare(batch_, 0)));
}

Bench::~Bench() = default;

std::string Bench::case_of(const Group& group) const {
  return layer_case(*model_, *group.layers[0]);
}

at::Tensor Bench::own_samples(const at::Tensor& of_all) const {
  return of_all.narrow(0, first_, count_);
}

void Bench::restore_start() {
  for (size_t i = 0; i < start_.size(); ++i) model_->parameters()[i]->value = start_[i].clone();
}

PerSample Bench::reference_gradients(const Batch& batch) {
  const DeterminismGuard determinism(true);
  if (format_.name != "bfloat16") return batch_of_one_gradients(*model_, batch);
  std::vector<Batch> micro;
  for (const Batch& of_rank : train::micro_batches(batch, world_->size()))
    for (const Batch& part : train::micro_batches(of_rank, step_.grad_accum))
      if (part.size() > 0) micro.push_back(part);
  return layerwise_gradients(*model_, micro);
}

// Between the middle norms, so that about half of the samples are clipped.
void Bench::choose_bound(const PerSample& gradients) {
  std::vector<std::string> all;
  for (const auto& [name, rows] : gradients) all.push_back(name);
  at::Tensor norms = norms_of(gradients, all);
  if (clip_.clipping == "per_layer") {
    std::vector<at::Tensor> parts;
    for (const Group& group : groups_) parts.push_back(norms_of(gradients, group.parameters));
    norms = at::cat(parts) * std::sqrt(static_cast<double>(groups_.size()));
  }
  const at::Tensor sorted = std::get<0>(norms.sort());
  const int64_t middle = sorted.size(0) / 2;
  clip_.max_grad_norm = sorted.size(0) == 1
                            ? sorted[0].item<double>() * 0.7
                            : (sorted[middle - 1] + sorted[middle]).item<double>() / 2;
}

// What one process must find in each step, by definition: starts from the expected weights of the
// step before, not from those of an engine.
const std::vector<Bench::ExpectedStep>& Bench::trajectory(bool is_private) {
  std::vector<ExpectedStep>& steps = trajectories_[is_private];
  if (!steps.empty()) return steps;
  restore_start();
  std::vector<at::Tensor> exact;  // weights without the rounding of their dtype
  for (const at::Tensor& value : start_) exact.push_back(value.to(at::kDouble));
  privacy::ClipOptions clip = clip_;
  for (size_t k = 0; k < num_steps_; ++k) {
    ExpectedStep step;
    const PerSample gradients =
        reference_gradients(model_->prepare(batch_, static_cast<int64_t>(k)));
    step.bound = step.bound_after = clip.max_grad_norm;
    if (is_private) {
      step.clipping = expected_clipping(gradients, groups_, clip);
      if (clip.clipping == "adaptive") {
        const double share =
            step.clipping.norms.le(clip.max_grad_norm).to(at::kDouble).mean().item<double>();
        clip.max_grad_norm *= std::exp(-clip.quantile_lr * (share - clip.target_quantile));
        step.bound_after = clip.max_grad_norm;
      }
    }
    for (const auto& [name, rows] : gradients) {
      const uint32_t index = model_->parameter(name).index;
      step.gradient[name] = expected_gradient(name, gradients, step, k, is_private) /
                            static_cast<double>(batch_.size());
      exact[index] = exact[index] - step.gradient[name] * learning_rate(num_steps_);
    }
    for (const auto& parameter : model_->parameters()) {
      step.weights.push_back(exact[parameter->index]);
      parameter->value = exact[parameter->index].to(parameter->value.scalar_type());
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

at::Tensor Bench::expected_gradient(const std::string& name, const PerSample& gradients,
                                    const ExpectedStep& step, size_t index, bool is_private) const {
  if (!is_private) return gradients.at(name).sum(0);
  at::Tensor sum = step.clipping.clipped.at(name).clone();
  if (clip_.noise_multiplier > 0) {
    // Drawn again from the counter; that it is normally distributed is tested with the kernel.
    const models::Parameter& parameter = model_->parameter(name);
    const auto wide = parameter.value.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    at::Tensor noise = at::zeros(sum.sizes(), sum.options().dtype(wide));
    kernels::add_counter_noise(noise, clip_.noise_multiplier * step.bound,
                               {static_cast<uint64_t>(model_->options().seed),
                                static_cast<uint32_t>(index + 1), parameter.index});
    sum = sum + noise.to(at::kDouble);
  }
  return sum;
}

std::vector<Cell> Bench::run(const std::string& engine, const Observer& observer) {
  trajectory(engine != "none");
  restore_start();
  WorstByCase worst;
  std::string error;
  try {
    compare(engine, worst, observer);
  } catch (const Interrupted&) {
    throw;
  } catch (const comm::CommError&) {
    throw;  // the other ranks are gone: no further cell can run
  } catch (const std::exception& problem) {
    error = problem.what();
    for (const Group& group : groups_) worst[case_of(group)].add(NAN, "an error");
    worst["all"].add(NAN, "an error");
  }
  merge_over_ranks(worst);
  std::vector<Cell> cells;
  for (const auto& [layer, found] : worst) {
    cells.push_back({engine, subject_.model, subject_.task, layer, variant_.name, format_.name,
                     found.error, format_.tolerance, found.error <= format_.tolerance,
                     kWhat[found.what], error});
  }
  return cells;
}

void Bench::compare(const std::string& engine, WorstByCase& worst, const Observer& observer) {
  const bool is_private = engine != "none";
  privacy::ClipOptions clip = clip_;
  clip.mode = engine;
  optim::OptimizerOptions sgd;
  sgd.lr = learning_rate(num_steps_);
  train::Trainer trainer({.model = model_,
                          .clip = clip,
                          .optimizer = sgd,
                          .step = step_,
                          .sharding = sharding_,
                          .world = world_,
                          .hooks = hooks_});
  trainer.record_layers(true);
  worst["all"];
  for (const Group& group : groups_) worst[case_of(group)];
  int64_t steps = 0;
  for (const ExpectedStep& want : trajectory(is_private)) {
    std::map<std::string, at::Tensor> used;  // the gradient that the optimizer was given
    // The second of several steps runs unobserved: gradients are then used unit by unit.
    const bool watches = ++steps != 2;
    trainer.observe_gradients({});
    if (watches) {
      trainer.observe_gradients([&](const models::Model& model) {
        for (const auto& parameter : model.parameters())
          if (parameter->grad.defined()) used[parameter->name] = parameter->grad.clone();
      });
    }
    const train::StepReport report = trainer.step(batch_.slice(first_, count_));
    if (is_private) {
      compare_norms(want, report, worst);
      compare_gathered_norms(want, report, worst);
      worst["all"].add(std::abs(trainer.clip_bound() / want.bound_after - 1),
                       "bound after the step");
    }
    if (watches) compare_gradients(want, used, worst);
    trainer.gather();
    compare_weights(want, worst);
    if (is_private && report.step == 1) show(want, report, engine, observer);
  }
}

void Bench::compare_norms(const ExpectedStep& want, const train::StepReport& report,
                          WorstByCase& worst) const {
  Worst& all = worst["all"];
  const Expected& clipping = want.clipping;
  all.add(largest_relative_error(at::tensor(report.norms, at::kDouble),
                                 own_samples(clipping.norms).cpu()),
          "norm");
  if (clipping.factors.defined()) {
    all.add(largest_relative_error(at::tensor(report.factors, at::kDouble),
                                   own_samples(clipping.factors).cpu()),
            "factor");
  }
  if (count_ == 0) return;
  // Micro-batches report one after the other: a group's norms are concatenated.
  for (size_t i = 0; i < groups_.size(); ++i) {
    std::vector<at::Tensor> norms, factors;
    for (const privacy::LayerNorms& layer : report.layers) {
      if (layer.layer != groups_[i].name) continue;
      norms.push_back(layer.norms);
      if (layer.factors.defined()) factors.push_back(layer.factors);
    }
    Worst& kind = worst[case_of(groups_[i])];
    if (norms.empty()) {
      kind.add(NAN, "norm missing");
      continue;
    }
    kind.add(relative_error(at::cat(norms), own_samples(clipping.group_norms[i])), "norm");
    if (!factors.empty())
      kind.add(relative_error(at::cat(factors), own_samples(clipping.group_factors[i])), "factor");
  }
}

// All ranks must hold identical norms of all samples, bit by bit, and they must be right.
void Bench::compare_gathered_norms(const ExpectedStep& want, const train::StepReport& report,
                                   WorstByCase& worst) const {
  if (world_->size() == 1) return;
  const at::Tensor gathered = at::tensor(report.all_norms, at::kDouble);
  worst["all"].add(largest_relative_error(gathered, want.clipping.norms.cpu()), "gathered norm");
  const at::Tensor most = gathered.clone(), least = gathered.clone();
  const auto group = world_->group("verify", c10::kCPU);
  group->all_reduce(most, "gathered norms", comm::Reduction::Max).wait();
  group->all_reduce(least, "gathered norms", comm::Reduction::Min).wait();
  if (!at::equal(most, least)) worst["all"].add(INFINITY, "gathered norms differ between ranks");
}

void Bench::compare_gradients(const ExpectedStep& want,
                              const std::map<std::string, at::Tensor>& used,
                              WorstByCase& worst) const {
  for (const Group& group : groups_) {
    double difference = 0, size = 0;
    for (const std::string& name : group.parameters) {
      const at::Tensor& expected = want.gradient.at(name);
      const auto got = used.find(name);
      const at::Tensor gradient =
          got == used.end() ? at::zeros_like(expected) : got->second.to(at::kDouble);
      difference += (gradient - expected).square().sum().item<double>();
      size += expected.square().sum().item<double>();
    }
    worst[case_of(group)].add(std::sqrt(difference / std::max(size, 1e-300)), "clipped sum");
  }
}

void Bench::compare_weights(const ExpectedStep& want, WorstByCase& worst) const {
  for (const Group& group : groups_) {
    double difference = 0, size = 0;
    for (const std::string& name : group.parameters) {
      const models::Parameter& parameter = model_->parameter(name);
      const at::Tensor& expected = want.weights[parameter.index];
      difference += (parameter.value.to(at::kDouble) - expected).square().sum().item<double>();
      size += expected.square().sum().item<double>();
    }
    worst[case_of(group)].add(std::sqrt(difference / std::max(size, 1e-300)), "weights");
  }
  for (const auto& parameter : model_->parameters()) {  // frozen ones must not move at all
    if (parameter->trainable) continue;
    if (!at::equal(parameter->value, start_[parameter->index]))
      worst["all"].add(INFINITY, "frozen weights");
  }
}

void Bench::merge_over_ranks(WorstByCase& worst) const {
  if (world_->size() == 1) return;
  const auto group = world_->group("verify", c10::kCPU);
  std::vector<double> errors, whats;
  for (const auto& [layer, found] : worst) errors.push_back(found.error);
  const at::Tensor most = at::tensor(errors, at::kDouble);
  group->all_reduce(most, "errors", comm::Reduction::Max).wait();
  size_t i = 0;
  for (const auto& [layer, found] : worst) {
    const bool own = most[static_cast<int64_t>(i++)].item<double>() == found.error;
    whats.push_back(own ? static_cast<double>(found.what) : 0);
  }
  const at::Tensor names = at::tensor(whats, at::kDouble);
  group->all_reduce(names, "errors", comm::Reduction::Max).wait();
  i = 0;
  for (auto& [layer, found] : worst) {
    found.error = most[static_cast<int64_t>(i)].item<double>();
    found.what = static_cast<int64_t>(names[static_cast<int64_t>(i++)].item<double>());
  }
}

void Bench::show(const ExpectedStep& want, const train::StepReport& report,
                 const std::string& engine, const Observer& observer) const {
  if (!observer.norms) return;
  const auto to_list = [](const at::Tensor& tensor) {
    const at::Tensor host = tensor.to(at::kCPU, at::kDouble).contiguous();
    return std::vector<double>(host.data_ptr<double>(), host.data_ptr<double>() + host.numel());
  };
  NormsShown shown;
  shown.title = fmt::format("{} {} {}, {}, {}, bound {:.6g}, clipping acts on {:.0f} %", engine,
                            subject_.model, subject_.task, variant_.name, format_.name, want.bound,
                            100 * want.clipping.clipped_share);
  shown.before = world_->size() > 1 ? report.all_norms : report.norms;
  for (size_t b = 0; b < report.factors.size() && world_->size() == 1; ++b)
    shown.after.push_back(report.norms[b] * report.factors[b]);
  shown.expected = to_list(want.clipping.norms);
  if (world_->size() > 1) {
    // What each rank found by itself, before the gather.
    const int64_t most = (batch_.size() + world_->size() - 1) / world_->size();
    at::Tensor own = at::full({most}, NAN, at::kDouble);
    own.narrow(0, 0, count_).copy_(at::tensor(report.norms, at::kDouble));
    const at::Tensor row = at::empty({most * world_->size()}, at::kDouble);
    world_->group("verify", c10::kCPU)->all_gather(row, own, "local norms").wait();
    for (int rank = 0; rank < world_->size(); ++rank) {
      const at::Tensor part = row.narrow(0, most * rank, most);
      shown.by_rank.push_back(to_list(part.masked_select(part.isnan().logical_not())));
    }
  }
  observer.norms(shown);
}

}  // namespace moonshard::verify
