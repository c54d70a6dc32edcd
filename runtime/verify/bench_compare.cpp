// The steps of one engine's trainer against what they must find.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "runtime/core/device.h"
#include "runtime/train/trainer.h"
#include "runtime/verify/bench.h"
#include "runtime/verify/subject_data.h"

namespace moonshard::verify {
namespace {

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
                                 "gathered norms differ between ranks",
                                 "samples of the step",
                                 "noise without a secret",
                                 "a sample's part of the sum",
                                 "a sample's part of the count",
                                 "a claim that does not hold"};

// What is small in theory, as queries and keys of few positions are, or zero (those of one),
// differs by the rounding of terms as large as the `whole` that it is a part of.
double beyond_rounding(double difference, double size, double whole, double epsilon) {
  const double rounding = 8 * epsilon * whole;
  if (difference <= rounding) return 0;
  return (difference - rounding) / std::max(size, 1e-300);
}

double relative_error(const at::Tensor& got, const at::Tensor& want, double whole = 0,
                      double epsilon = 0) {
  return beyond_rounding((got.to(want.device(), at::kDouble) - want).norm().item<double>(),
                         want.norm().item<double>(), whole, epsilon);
}

double largest_relative_error(const at::Tensor& got, const at::Tensor& want) {
  if (got.sizes() != want.sizes()) return INFINITY;
  if (want.numel() == 0) return 0;
  return ((got.to(want.device(), at::kDouble) - want).abs() / want.abs().clamp_min(1e-300))
      .max()
      .item<double>();
}

}  // namespace

void Worst::add(double candidate, const char* name) {
  if (candidate <= error) return;  // not true for NaN, which must count
  error = std::isnan(candidate) ? std::numeric_limits<double>::infinity() : candidate;
  for (size_t i = 0; i < std::size(kWhat); ++i)
    if (std::string_view(kWhat[i]) == name) what = static_cast<int64_t>(i);
}

const char* Worst::name() const {
  return kWhat[what];
}

// Of variants that draw; null for the others, whose batches are given.
std::unique_ptr<data::Source> Bench::source() const {
  if (!variant_.draws) return nullptr;
  return std::make_unique<data::DatasetSource>(as_dataset(batch_), loader_, RandomWords(draw_seed_),
                                               resolve_device(model_->options().device),
                                               world_->rank(), world_->size());
}

void Bench::compare(const std::string& engine, WorstByCase& worst, const Observer& observer) {
  const bool is_private = engine != "none";
  privacy::ClipOptions clip = clip_;
  clip.mode = engine;
  privacy::PrivacyOptions privacy;
  privacy.secure = variant_.secret;
  train::Trainer trainer({.model = model_,
                          .clip = clip,
                          .optimizer = optimizer_,
                          .data = source(),
                          .step = step_,
                          .sharding = sharding_,
                          .world = world_,
                          .privacy = privacy,
                          .hooks = hooks_});
  trainer.record_layers(true);
  worst["all"];
  for (const Group& group : groups_) worst[case_of(group)];
  std::vector<ExpectedStep> expected = trajectory(is_private);
  if (variant_.secret) {
    const auto secret = trainer.account().secret();
    if (secret == nullptr) worst["all"].add(INFINITY, "noise without a secret");
    if (secret != nullptr) expected = {secret_step(secret.get())};
  }
  for (size_t k = 0; k < expected.size(); ++k) {
    const PlannedStep& given = plan_[k];
    const ExpectedStep& want = expected[k];
    std::map<std::string, at::Tensor> used;  // the gradient that the optimizer was given
    // The second of several steps runs unobserved: gradients are then used unit by unit. So does
    // the only one of secret noise.
    const bool watches = k != 1 && !variant_.secret;
    trainer.observe_gradients({});
    if (watches) {
      trainer.observe_gradients([&](const models::Model& model) {
        for (const auto& parameter : model.parameters())
          if (parameter->grad.defined()) used[parameter->name] = parameter->grad.clone();
      });
    }
    const train::StepReport report =
        variant_.draws ? trainer.step() : trainer.step(given.batch.slice(given.first, given.count));
    if (report.batch_size != given.batch.size()) worst["all"].add(INFINITY, "samples of the step");
    if (is_private) {
      compare_norms(given, want, report, worst);
      compare_gathered_norms(want, report, worst);
      worst["all"].add(std::abs(trainer.clip_bound() / want.bound_after - 1),
                       "bound after the step");
    }
    if (watches) compare_gradients(want, used, worst);
    trainer.gather();
    compare_weights(want, worst);
    if (is_private && report.step == 1) show(given, want, report, engine, observer);
  }
}

void Bench::compare_norms(const PlannedStep& given, const ExpectedStep& want,
                          const train::StepReport& report, WorstByCase& worst) const {
  const auto own_samples = [&](const at::Tensor& of_all) {
    return of_all.narrow(0, given.first, given.count);
  };
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
  if (given.count == 0) return;
  const double whole = own_samples(clipping.norms).norm().item<double>();
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
    kind.add(relative_error(at::cat(norms), own_samples(clipping.group_norms[i]), whole,
                            format_.epsilon),
             "norm");
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
  double whole = 0;
  for (const auto& [name, gradient] : want.gradient)
    whole += gradient.square().sum().item<double>();
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
    worst[case_of(group)].add(
        beyond_rounding(std::sqrt(difference), std::sqrt(size), std::sqrt(whole), format_.epsilon),
        "clipped sum");
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

void merge_over_ranks(comm::World& world, WorstByCase& worst) {
  if (world.size() == 1) return;
  const auto group = world.group("verify", c10::kCPU);
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

void Bench::show(const PlannedStep& given, const ExpectedStep& want,
                 const train::StepReport& report, const std::string& engine,
                 const Observer& observer) const {
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
    const int64_t most = (given.batch.size() + world_->size() - 1) / world_->size();
    at::Tensor own = at::full({most}, NAN, at::kDouble);
    own.narrow(0, 0, given.count).copy_(at::tensor(report.norms, at::kDouble));
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
