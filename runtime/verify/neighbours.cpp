#include "runtime/verify/neighbours.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/base/check.h"
#include "runtime/models/registry.h"
#include "runtime/verify/reference.h"
#include "runtime/verify/subject_data.h"

namespace moonshard::verify {
namespace {

constexpr double kAllowedExcess = 1e-6;

double middle_norm(const PerSample& gradients) {
  std::vector<std::string> all;
  for (const auto& [name, rows] : gradients) all.push_back(name);
  return norms_of(gradients, all).median().item<double>();
}

}  // namespace

Neighbours::Neighbours(const VerifyOptions& options, const Subject& subject, const Variant& variant,
                       const Format& format, std::shared_ptr<comm::World> world)
    : CaseParts(options, subject, variant, format, std::move(world)) {
  models::ModelOptions model = model_options(options);
  // Drawn by the place in the batch: the others' would be drawn anew where one sample leaves. That
  // is harmless where nobody knows the draws, and would hide what is looked for here.
  if (models::find_preset(model.model).family->takes("label_dropout")) model.label_dropout = 0;
  variant.apply(model, clip_, step_);
  step_.expected_batch_size = 1;  // the sum itself
  shrink(variant, model, sharding_.parallel != "none");
  model_ = models::make_model(model);
  move_off_zero(*model_);
  for (const auto& parameter : model_->parameters()) start_.push_back(parameter->value.clone());
  // By the norms of usual samples: the extreme ones would make bounds of their own.
  const PerSample usual = batch_of_one_gradients(*model_, make_batch(*model_, variant));
  clip_.max_grad_norm = middle_norm(usual);
  if (clip_.clipping == "groups") choose_group_bounds(usual);
  bound_ = total_bound(usual);
  batch_ = make_difficult_batch(*model_, variant);
}

std::vector<Cell> Neighbours::run(const std::string& engine) {
  std::vector<std::string> reduce_dtypes{"auto"};
  // The sums over ranks come after the factors, whatever style of clipping made them: flat clipping
  // goes through all dtypes.
  const bool goes_through = world_->size() == 1 || stands_for_all(engine);
  if (sharding_.parallel != "none" && variant_.name == "neighbour" && goes_through)
    reduce_dtypes = {"auto", "float32", "float64", "bfloat16"};
  std::vector<Cell> cells;
  for (const std::string& reduce_dtype : reduce_dtypes) {
    for (size_t i = 0; i < start_.size(); ++i) model_->parameters()[i]->value = start_[i].clone();
    const std::string layer =
        reduce_dtype == "auto" ? "all" : fmt::format("all, sums in {}", reduce_dtype);
    WorstByCase worst;
    const std::string error = error_of([&] { compare(engine, reduce_dtype, worst[layer]); });
    if (!error.empty()) worst[layer].add(NAN, "an error");
    merge_over_ranks(*world_, worst);
    cells.push_back(cell(engine, layer, worst[layer], kAllowedExcess, error));
  }
  return cells;
}

Neighbours::Released Neighbours::release(train::Trainer& trainer,
                                         const std::vector<int64_t>& samples) const {
  const Batch batch = chosen_samples(batch_, samples);
  Batch own = train::micro_batches(batch, world_->size())[static_cast<size_t>(world_->rank())];
  if (variant_.fills_up) own = data::padded(own, batch_.size() + 1);
  Released released;
  trainer.observe_gradients([&](const models::Model& model) {
    std::vector<at::Tensor> parts;
    for (const auto& parameter : model.parameters())
      if (parameter->trainable) parts.push_back(parameter->grad.to(at::kDouble).flatten());
    released.sum = at::cat(parts);
  });
  const train::RunState before = trainer.state();
  trainer.step(own);
  if (clip_.clipping == "adaptive") {
    const double moved = std::log(trainer.clip_bound() / before.clip_bound);
    released.count = clip_.target_quantile - 0.5 - moved / clip_.quantile_lr;
    trainer.restore(before);  // so that the next step has the same bound
  }
  return released;
}

void Neighbours::compare(const std::string& engine, const std::string& reduce_dtype,
                         Worst& worst) const {
  privacy::ClipOptions clip = clip_;
  clip.mode = engine;
  optim::OptimizerOptions still;
  still.lr = 0;  // the same weights for every step
  sharding::ShardingOptions sharding = sharding_;
  sharding.reduce_dtype = reduce_dtype;
  privacy::PrivacyOptions privacy;
  privacy.secure = true;
  train::Trainer trainer({.model = model_,
                          .clip = clip,
                          .optimizer = still,
                          .step = step_,
                          .sharding = sharding,
                          .world = world_,
                          .privacy = privacy,
                          .hooks = hooks_});
  const bool says_so = trainer.account().why_no_epsilon().starts_with("reduce_dtype = ");
  const auto add = [&](const Released& with, const Released& without) {
    const double moved = (with.sum - without.sum).norm().item<double>();
    const double excess = std::max(0.0, moved / bound_ - 1);
    const double count = std::max(0.0, std::abs(with.count - without.count) / 0.5 - 1);
    if (!says_so) worst.add(excess, "a sample's part of the sum");
    worst.add(count, "a sample's part of the count");
    if (std::isnan(moved)) worst.add(moved, "a sample's part of the sum");
  };
  std::vector<int64_t> all(static_cast<size_t>(batch_.size()));
  std::iota(all.begin(), all.end(), 0);
  const Released whole = release(trainer, all), empty = release(trainer, {});
  for (const int64_t left : all) {
    if (world_->size() > 1 && left != 0 && left != 2) continue;  // slow
    std::vector<int64_t> others = all;
    others.erase(others.begin() + left);
    add(whole, release(trainer, others));
  }
  add(release(trainer, {2}), empty);
}

}  // namespace moonshard::verify
