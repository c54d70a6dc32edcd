#include "runtime/verify/reference.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

namespace moonshard::verify {
namespace {

// The model's parameters as leaves of autograd, 16-bit ones widened so that their gradients are not
// rounded; all as before when the guard ends.
class PlainAutograd {
 public:
  explicit PlainAutograd(models::Model& model) : model_(model) {
    for (const auto& parameter : model_.parameters()) {
      before_.push_back(parameter->value);
      const at::Tensor& value = parameter->value;
      const auto wide = value.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      parameter->value = value.detach().to(wide, false, true).set_requires_grad(true);
    }
    model_.seam().plain_autograd = true;
  }
  ~PlainAutograd() {
    model_.seam().plain_autograd = false;
    for (size_t i = 0; i < before_.size(); ++i) model_.parameters()[i]->value = before_[i];
  }
  PlainAutograd(const PlainAutograd&) = delete;
  PlainAutograd& operator=(const PlainAutograd&) = delete;

 private:
  models::Model& model_;
  std::vector<at::Tensor> before_;
};

// Records what the seam passes on.
class Recorder : public models::GradientConsumer {
 public:
  struct Entry {
    const models::ParamLayer* layer;
    at::Tensor a, g;
  };
  void consume(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) override {
    entries.push_back({&layer, a, g});
  }
  std::vector<Entry> entries;
};

// A layer's forward by its definition: a [1, …], weight and bias in double.
at::Tensor layer_output(const models::ParamLayer& layer, const at::Tensor& a,
                        const at::Tensor& weight, const at::Tensor& bias) {
  namespace kinds = models::kinds;
  if (layer.kind == kinds::kEmbedding) return at::embedding(weight, a, layer.padding_id);
  if (layer.kind == kinds::kPositionTable) return weight + at::zeros({1}, weight.options());
  const at::Tensor x = a.to(at::kDouble);
  const bool scales = layer.kind == kinds::kRmsNorm || layer.kind == kinds::kLayerNorm;
  const at::Tensor y = scales ? x * weight : at::matmul(x, weight.flatten(1).t());
  return bias.defined() ? y + bias : y;
}

void add_layer_gradients(const Recorder::Entry& entry, int64_t sample, int64_t row,
                         PerSample& result) {
  const models::ParamLayer& layer = *entry.layer;
  const auto leaf = [](const models::Parameter* parameter) {
    return parameter == nullptr
               ? at::Tensor()
               : parameter->value.detach().to(at::kDouble, false, true).set_requires_grad(true);
  };
  const at::Tensor weight = leaf(layer.weight), bias = leaf(layer.bias);
  const at::Tensor a = entry.a.defined() ? entry.a.narrow(0, sample, 1) : entry.a;
  const at::Tensor g = entry.g.narrow(0, sample, 1).to(at::kDouble);
  at::Tensor y;
  {
    const at::AutoGradMode enable(true);
    y = layer_output(layer, a, weight, bias);
  }
  std::vector<at::Tensor> leaves{weight};
  if (bias.defined()) leaves.push_back(bias);
  const auto gradients = torch::autograd::grad({y}, leaves, {g.view_as(y)});
  const auto add = [&](const models::Parameter* parameter, const at::Tensor& gradient) {
    if (parameter->trainable) result.at(parameter->name)[row].add_(gradient);
  };
  add(layer.weight, gradients[0]);
  if (bias.defined()) add(layer.bias, gradients[1]);
}

}  // namespace

PerSample layerwise_gradients(models::Model& model, const std::vector<Batch>& micro_batches) {
  int64_t samples = 0;
  for (const Batch& batch : micro_batches) samples += batch.size();
  PerSample result;
  for (const auto& parameter : model.parameters()) {
    if (!parameter->trainable) continue;
    std::vector<int64_t> shape{samples};
    for (const int64_t size : parameter->value.sizes()) shape.push_back(size);
    result[parameter->name] = at::zeros(shape, parameter->value.options().dtype(at::kDouble));
  }
  int64_t row = 0;
  for (const Batch& batch : micro_batches) {
    Recorder recorder;
    {
      const at::AutoGradMode enable(true);
      const models::WordsInUse words(model.seam(), batch);
      const at::Tensor total = model.losses(batch).sum();
      model.seam().consumer = &recorder;
      torch::autograd::grad({total}, {model.seam().anchor}, {}, false, false, true);
      model.seam().consumer = nullptr;
    }
    for (int64_t b = 0; b < batch.size(); ++b) {
      for (const Recorder::Entry& entry : recorder.entries)
        add_layer_gradients(entry, b, row + b, result);
    }
    row += batch.size();
  }
  return result;
}

namespace {

PerSample no_samples(const models::Model& model) {
  PerSample result;
  for (const auto& parameter : model.parameters()) {
    if (!parameter->trainable) continue;
    std::vector<int64_t> shape{0};
    for (const int64_t size : parameter->value.sizes()) shape.push_back(size);
    result[parameter->name] = at::empty(shape, parameter->value.options().dtype(at::kDouble));
  }
  return result;
}

// One backward pass per sample, of a model that is plain autograd now.
PerSample plain_gradients(models::Model& model, const Batch& batch) {
  if (batch.size() == 0) return no_samples(model);
  const at::AutoGradMode enable(true);
  std::map<std::string, std::vector<at::Tensor>> rows;
  for (int64_t b = 0; b < batch.size(); ++b) {
    std::vector<at::Tensor> leaves;
    std::vector<std::string> names;
    for (const auto& parameter : model.parameters()) {
      if (!parameter->trainable) continue;
      leaves.push_back(parameter->value);
      names.push_back(parameter->name);
    }
    const Batch sample = batch.slice(b, 1);
    const models::WordsInUse words(model.seam(), sample);
    const at::Tensor loss = model.losses(sample).sum();
    const auto gradients = torch::autograd::grad({loss}, leaves, {}, false, false, true);
    for (size_t i = 0; i < leaves.size(); ++i) {
      rows[names[i]].push_back(gradients[i].defined() ? gradients[i].to(at::kDouble)
                                                      : at::zeros_like(leaves[i], at::kDouble));
    }
  }
  PerSample result;
  for (const auto& [name, list] : rows) result[name] = at::stack(list).detach();
  return result;
}

}  // namespace

PerSample batch_of_one_gradients(models::Model& model, const Batch& batch) {
  const PlainAutograd plain(model);
  return plain_gradients(model, batch);
}

PerSample float64_gradients(models::Model& model, const Batch& batch) {
  const PlainAutograd plain(model);
  const at::ScalarType narrow = model.seam().compute_type;
  for (const auto& parameter : model.parameters())
    parameter->value = parameter->value.detach().to(narrow).to(at::kDouble).set_requires_grad(true);
  model.seam().compute_type = at::kDouble;
  PerSample gradients;
  try {
    gradients = plain_gradients(model, batch);
  } catch (...) {
    model.seam().compute_type = narrow;
    throw;
  }
  model.seam().compute_type = narrow;
  return gradients;
}

OwnPassTolerance own_pass_tolerance(const models::Model& model) {
  int64_t norms_of_block = 0;
  for (const auto& layer : model.layers())
    norms_of_block += layer->block == 0 && layer->kind == models::kinds::kRmsNorm;
  const double undamped = norms_of_block > 4 ? 3 : norms_of_block > 2 ? 2 : 1;
  const double sigma =
      undamped * 0x1p-9 * std::sqrt(2.0 * static_cast<double>(model.layers().size()));
  return {3 * sigma, 2 * sigma};
}

at::Tensor ReferenceOptimizer::updated(const std::string& parameter, const at::Tensor& weights,
                                       const at::Tensor& gradient) {
  const double lr = options_.lr;
  if (options_.optimizer == "sgd") return weights - lr * gradient;
  const bool decoupled = options_.optimizer == "adamw";
  const double decay = options_.weight_decay >= 0 ? options_.weight_decay : decoupled ? 0.1 : 0.0;
  const at::Tensor g = decoupled ? gradient : gradient + decay * weights;
  Moments& moments = moments_[parameter];
  if (!moments.mean.defined()) moments.mean = moments.mean_square = at::zeros_like(weights);
  ++moments.steps;
  moments.mean = options_.beta1 * moments.mean + (1 - options_.beta1) * g;
  moments.mean_square = options_.beta2 * moments.mean_square + (1 - options_.beta2) * g.square();
  const auto steps = static_cast<double>(moments.steps);
  const at::Tensor mean = moments.mean / (1 - std::pow(options_.beta1, steps));
  const at::Tensor square = moments.mean_square / (1 - std::pow(options_.beta2, steps));
  const at::Tensor shrunk = decoupled ? weights * (1 - lr * decay) : weights;
  return shrunk - lr * mean / (square.sqrt() + options_.eps);
}

std::vector<Group> groups_of(const models::Model& model) {
  std::vector<Group> groups;
  std::map<std::string, size_t> owner;
  for (const auto& layer : model.layers()) {
    if (!layer->trainable()) continue;
    std::vector<std::string> parameters;
    for (const models::Parameter* parameter : {layer->weight, layer->bias}) {
      if (parameter != nullptr && parameter->trainable) parameters.push_back(parameter->name);
    }
    size_t group = groups.size();
    for (const std::string& name : parameters) {
      if (owner.contains(name)) group = owner[name];
    }
    if (group == groups.size()) groups.push_back({layer->name, {}, {}});
    groups[group].layers.push_back(layer.get());
    for (const std::string& name : parameters) {
      if (owner.emplace(name, group).second) groups[group].parameters.push_back(name);
    }
  }
  return groups;
}

at::Tensor norms_of(const PerSample& gradients, const std::vector<std::string>& parameters) {
  at::Tensor squares;
  for (const std::string& name : parameters) {
    const at::Tensor part = gradients.at(name).flatten(1).square().sum(1);
    squares = squares.defined() ? squares + part : part;
  }
  return squares.sqrt();
}

std::vector<std::vector<std::string>> members_of(const std::vector<privacy::ClipGroup>& groups,
                                                 const PerSample& gradients) {
  std::vector<std::vector<std::string>> members(groups.size() + 1);
  for (const auto& [name, rows] : gradients)
    members[privacy::clip_group_of(groups, name)].push_back(name);
  return members;
}

namespace {

at::Tensor clipped_sum(const at::Tensor& rows, const at::Tensor& factors) {
  std::vector<int64_t> column(static_cast<size_t>(rows.dim()), 1);
  column[0] = rows.size(0);
  return (rows * factors.view(column)).sum(0);
}

// Each of clip_groups by its own norm and bound.
void clip_in_groups(const PerSample& gradients, const std::vector<Group>& layers,
                    const privacy::ClipOptions& options, Expected& expected) {
  std::vector<privacy::ClipGroup> groups = privacy::parse_clip_groups(options.clip_groups);
  const auto members = members_of(groups, gradients);
  groups.push_back({{}, options.max_grad_norm});
  double below_one = 0, used = 0;
  for (size_t k = 0; k < groups.size(); ++k) {
    if (members[k].empty()) continue;
    const at::Tensor norms = norms_of(gradients, members[k]);
    const at::Tensor factors = at::minimum(at::ones_like(norms), groups[k].bound / (norms + 1e-6));
    below_one += factors.lt(1).to(at::kDouble).mean().item<double>();
    ++used;
    for (const std::string& name : members[k])
      expected.clipped[name] = clipped_sum(gradients.at(name), factors);
  }
  for (const Group& layer : layers)
    expected.group_norms.push_back(norms_of(gradients, layer.parameters));
  expected.clipped_share = below_one / used;
}

}  // namespace

Expected expected_clipping(const PerSample& gradients, const std::vector<Group>& groups,
                           const privacy::ClipOptions& options) {
  Expected expected;
  std::vector<std::string> all;
  for (const auto& [name, rows] : gradients) all.push_back(name);
  expected.norms = norms_of(gradients, all);
  if (options.clipping == "groups") {
    clip_in_groups(gradients, groups, options, expected);
    return expected;
  }
  const bool per_layer = options.clipping == "per_layer";
  const double bound = per_layer
                           ? options.max_grad_norm / std::sqrt(static_cast<double>(groups.size()))
                           : options.max_grad_norm;
  const auto factors_of = [&](const at::Tensor& norms) {
    if (options.clipping == "automatic") return bound / (norms + options.stability);
    return at::minimum(at::ones_like(norms), bound / (norms + 1e-6));
  };
  if (!per_layer) expected.factors = factors_of(expected.norms);
  double below_one = 0;
  for (const Group& group : groups) {
    const at::Tensor norms = norms_of(gradients, group.parameters);
    const at::Tensor factors = per_layer ? factors_of(norms) : expected.factors;
    below_one += factors.lt(1).to(at::kDouble).mean().item<double>();
    for (const std::string& name : group.parameters) {
      expected.clipped[name] = clipped_sum(gradients.at(name), factors);
    }
    expected.group_norms.push_back(norms);
    expected.group_factors.push_back(factors);
  }
  expected.clipped_share = below_one / static_cast<double>(groups.size());
  return expected;
}

}  // namespace moonshard::verify
