#include "runtime/audit/canary_bench.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "runtime/models/registry.h"

namespace moonshard::audit {
namespace {

constexpr int64_t kTokens = 3;  // more than one: norms need their Gram matrices
constexpr double kBound = 1;    // far below the canaries' norms of about 15: each is clipped to it
// Change of the weights by noise: a thousandth of their size, so that directions hold for hundreds
// of steps, and thousands of float32 ulps, so that the release is visible.
constexpr double kMove = 1e-5;
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kOutput = "lm_head.weight";

std::shared_ptr<models::Model> make_canary_model(const BenchOptions& options) {
  models::ModelOptions shapes;
  shapes.model = "llama3-tiny";
  shapes.task = "lm";
  shapes.device = options.device;
  shapes.seed = options.seed;
  shapes.vocab_size = CanaryBench::kRows;
  shapes.hidden_dim = 16;
  shapes.intermediate_dim = 16;
  shapes.num_layers = 1;
  shapes.num_heads = 2;
  shapes.num_kv_heads = 1;
  shapes.head_dim = 8;
  std::shared_ptr<models::Model> model = models::make_model(shapes);
  // Small weights inside of the block: a canary's gradient there, which others share, is then a
  // hundredth part of its energy.
  for (const auto& parameter : model->parameters())
    if (parameter->value.dim() == 2 && parameter->name.starts_with("model.layers."))
      parameter->value.mul_(0.1);
  return model;
}

Released on_host(const at::Tensor& embedding, const at::Tensor& output) {
  return {embedding.detach().to(at::kCPU, at::kDouble, false, true),
          output.detach().to(at::kCPU, at::kDouble, false, true)};
}

}  // namespace

Released difference(const Released& one, const Released& other) {
  return {one.embedding - other.embedding, one.output - other.output};
}

CanaryBench::CanaryBench(const BenchOptions& options, std::shared_ptr<comm::World> world)
    : options_(options),
      world_(std::move(world)),
      model_(make_canary_model(options)),
      lr_(kMove * static_cast<double>(options.expected_batch_size) / (options.sigma * kBound)) {
  find_directions();
  privacy::ClipOptions clip;
  clip.mode = options_.engine;
  clip.clipping = options_.clipping;
  clip.max_grad_norm = kBound;
  clip.noise_multiplier = options_.sigma;
  if (options_.clipping == "adaptive") {  // the bound stays below the canaries' norms
    clip.quantile_noise = 10 * options_.sigma;
    clip.quantile_lr = 0.005;
  }
  optim::OptimizerOptions sgd;  // the change of the weights is then the release itself
  sgd.lr = lr_;
  train::StepOptions step;
  step.grad_accum = options_.grad_accum;
  step.expected_batch_size = options_.expected_batch_size;
  privacy::PrivacyOptions noise;
  noise.secure = options_.secure;
  trainer_ = std::make_unique<train::Trainer>(train::TrainerParts{.model = model_,
                                                                  .clip = clip,
                                                                  .optimizer = sgd,
                                                                  .step = step,
                                                                  .sharding = options_.sharding,
                                                                  .world = world_,
                                                                  .privacy = noise,
                                                                  .hooks = options_.hooks});
  before_ = weights();
}

// By plain differentiation of all canaries at once: a canary's embedding row is its own, and other
// canaries contribute less than a hundredth to its row of the output layer.
void CanaryBench::find_directions() {
  const at::AutoGradMode enable(true);
  models::Parameter &embedding = model_->parameter(kEmbedding),
                    &output = model_->parameter(kOutput);
  const at::Tensor values[] = {embedding.value, output.value};
  embedding.value = values[0].detach().clone().set_requires_grad(true);
  output.value = values[1].detach().clone().set_requires_grad(true);
  model_->seam().plain_autograd = true;
  std::vector<int64_t> all(kRows);
  for (int64_t i = 0; i < kRows; ++i) all[static_cast<size_t>(i)] = i;
  const auto gradients =
      torch::autograd::grad({model_->losses(batch_of(all)).sum()}, {embedding.value, output.value});
  model_->seam().plain_autograd = false;
  embedding.value = values[0];
  output.value = values[1];
  direction_ = on_host(gradients[0], gradients[1]);
  const at::Tensor norms =
      (direction_.embedding.square().sum(1, true) + direction_.output.square().sum(1, true)).sqrt();
  direction_ = {direction_.embedding / norms, direction_.output / norms};
}

Batch CanaryBench::batch_of(const std::vector<int64_t>& canaries) const {
  const at::Tensor ids = at::tensor(canaries, at::kLong)
                             .view({-1, 1})
                             .repeat({1, kTokens})
                             .to(model_->parameter(kEmbedding).value.device());
  Batch batch;
  batch.input_ids = ids;
  batch.attention_mask = at::ones_like(ids, at::kBool);
  batch.labels = ids.clone();
  return batch;
}

Released CanaryBench::weights() {
  trainer_->gather();
  return on_host(model_->parameter(kEmbedding).value, model_->parameter(kOutput).value);
}

Released CanaryBench::step(const std::vector<int64_t>& canaries) {
  std::vector<int64_t> own;
  for (size_t i = 0; i < canaries.size(); ++i)
    if (static_cast<int>(i) % world_->size() == world_->rank()) own.push_back(canaries[i]);
  const double bound = trainer_->clip_bound();  // moves with adaptive clipping
  trainer_->step(batch_of(own));
  const Released after = weights();
  const double scale = static_cast<double>(options_.expected_batch_size) / (lr_ * bound);
  const Released released{(before_.embedding - after.embedding) * scale,
                          (before_.output - after.output) * scale};
  before_ = after;
  return released;
}

at::Tensor CanaryBench::project(const Released& released) const {
  return (released.embedding * direction_.embedding).sum(1) +
         (released.output * direction_.output).sum(1);
}

double CanaryBench::untouched_size(const Released& released, int64_t touched) const {
  const auto rest = [touched](const at::Tensor& rows) {
    return rows.slice(0, touched).square().mean();
  };
  return std::sqrt((rest(released.embedding) + rest(released.output)).item<double>() / 2);
}

}  // namespace moonshard::audit
