#include "runtime/checkpoint/checkpoint_fit.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "runtime/core/device.h"
#include "runtime/models/model_schema.h"
#include "runtime/weights/labels.h"

namespace moonshard::checkpoint {

Json architecture(const models::ModelOptions& options) {
  Json all = models::model_schema().to_json(&options);
  // How it computes, where its weights came from, what it is called; seed and frozen are apart.
  for (const char* name : {"model", "weights", "device", "param_dtype", "attention",
                           "checkpointing", "checkpoint_every", "frozen", "seed"})
    all.erase(name);
  return all;
}

std::vector<std::string> frozen_names(const models::Model& model) {
  std::vector<std::string> names;
  for (const auto& parameter : model.parameters())
    if (!parameter->trainable) names.push_back(parameter->name);
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

std::map<std::string, std::vector<int64_t>> shapes_of(const models::Model& model) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& parameter : model.parameters())
    shapes[parameter->name] = parameter->value.sizes().vec();
  return shapes;
}

std::string joined(const std::vector<std::string>& words) {
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

void check_model(const CheckpointIndex& index, const models::Model& model,
                 const std::string& where) {
  const Json own = architecture(model.options());
  for (const auto& [name, value] : own.items()) {
    const auto saved = index.model.find(name);
    if (saved == index.model.end()) continue;  // an option that is younger than the checkpoint
    MS_CHECK(*saved == value,
             "checkpoint {}: model option '{}': expected {}, as saved, got {}; make the same model",
             where, name, saved->dump(), value.dump());
  }
  const auto shapes = shapes_of(model);
  const auto dtype = dtype_from_name(model.options().dtype);
  for (const auto& [name, shape] : shapes) {
    const StoredTensor* saved = index.find(name);
    MS_CHECK(saved != nullptr,
             "checkpoint {}: expected the parameters of model '{}', got none named '{}'; it "
             "belongs to another model",
             where, model.options().model, name);
    MS_CHECK(saved->shape == shape && saved->dtype == dtype,
             "checkpoint {}: parameter '{}': expected {} {}, as saved, got {} {} in model '{}'; "
             "make the same model",
             where, name, dtype_name(saved->dtype), weights::shape_text(saved->shape),
             dtype_name(dtype), weights::shape_text(shape), model.options().model);
  }
  for (const StoredTensor& tensor : index.tensors) {
    MS_CHECK(tensor.name.starts_with("optimizer/") || shapes.contains(tensor.name),
             "checkpoint {}: expected the parameters of model '{}', got {} as well; it belongs to "
             "another model",
             where, model.options().model, weights::in_quotes(tensor.name));
  }
  std::vector<std::string> frozen = index.frozen;
  std::sort(frozen.begin(), frozen.end());
  const std::vector<std::string> own_frozen = frozen_names(model);
  MS_CHECK(
      frozen == own_frozen,
      "checkpoint {}: expected these parameters frozen, as saved: {}; got: {}; freeze the same",
      where, joined(frozen), joined(own_frozen));
}

void check_optimizer(const CheckpointIndex& index, const optim::OptimizerOptions& options,
                     const optim::Optimizer& optimizer, const std::string& where) {
  const std::vector<std::string> names = optimizer.state_names();
  MS_CHECK(
      index.optimizer == options.optimizer && index.optimizer_states == names,
      "checkpoint {}: expected optimizer {} (state: {}), as saved, got {} (state: {}); use the "
      "same",
      where, index.optimizer, joined(index.optimizer_states), options.optimizer, joined(names));
}

void check_privacy(const CheckpointIndex& index, bool is_private, const privacy::ClipOptions& clip,
                   const std::string& where) {
  MS_CHECK(index.is_private == is_private,
           "checkpoint {}: expected {} engine, as saved, got '{}'; steps of both kinds make no "
           "private run",
           where, index.is_private ? "a private" : "no private", clip.mode);
  if (!is_private) return;
  // Engines give the same sums; the noise and what it is scaled to make the guarantee. Steps that
  // are accounted for one by one may differ in their noise.
  const bool accounted = accountant::History::from_json(index.privacy_history, where).num_steps() ==
                         static_cast<double>(index.privacy_steps);
  MS_CHECK((accounted || index.noise_multiplier == clip.noise_multiplier) &&
               index.clipping == clip.clipping,
           "checkpoint {}: expected noise_multiplier {} and clipping {}, as its {} private steps "
           "had, got {} and {}; a count of steps is for one kind of step",
           where, index.noise_multiplier, index.clipping, index.privacy_steps,
           clip.noise_multiplier, clip.clipping);
  if (index.clip_bound >= 1e-12 && index.clip_bound <= 1e12) return;
  throw IoError(fmt::format("{}/{}: 'bound': expected 1e-12 to 1e12, got {}; the file is damaged",
                            where, kIndexName, index.clip_bound));
}

}  // namespace

void check_fits(const CheckpointIndex& index, const train::Trainer& trainer, bool other_seed,
                const std::string& where) {
  check_model(index, trainer.model(), where);
  check_optimizer(index, trainer.optimizer_options(), trainer.optimizer(), where);
  check_privacy(index, trainer.engine().is_private(), trainer.clip_options(), where);
  const int64_t seed = trainer.model().options().seed;
  MS_CHECK(other_seed || index.seed == seed,
           "checkpoint {}: expected a model with seed {}, as saved, got seed {}; make it with "
           "that seed, or give other_seed = true for other noise and other data from here on",
           where, index.seed, seed);
}

}  // namespace moonshard::checkpoint
