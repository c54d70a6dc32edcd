#include "runtime/checkpoint/run_parts.h"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/core/device.h"
#include "runtime/models/model_options.h"

namespace moonshard::checkpoint {

Json architecture(const models::ModelOptions& options) {
  Json all = models::model_schema().to_json(&options);
  // How it computes, where its weights came from, what it is called; seed and frozen are apart.
  for (const char* name :
       {"model", "weights", "device", "param_dtype", "attention", "checkpointing",
        "checkpoint_every", "head_chunk", "last_block", "frozen", "seed"})
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

void finish_device_work(const models::Model& model) {
  const c10::Device device = resolve_device(model.options().device);
  if (!device.is_cuda()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

CheckpointIndex index_of(const train::Trainer& trainer, const std::string& id) {
  const train::RunState state = trainer.state();
  const models::ModelOptions& model = trainer.model().options();
  const sharding::ShardingOptions& sharding = trainer.sharding_options();
  CheckpointIndex index;
  index.id = id;
  index.previous = state.checkpoint;
  index.step = state.step;
  index.seed = model.seed;
  index.world = trainer.world().size();
  index.parallel = {
      {"parallel", sharding.parallel}, {"sharding", sharding.sharding}, {"wrap", sharding.wrap}};
  index.model = architecture(model);
  index.model["model"] = model.model;
  index.frozen = frozen_names(trainer.model());
  index.optimizer = trainer.optimizer_options().optimizer;
  index.optimizer_states = trainer.optimizer().state_names();
  index.data_position = state.data_position;
  index.is_private = trainer.engine().is_private();
  index.engine = trainer.clip_options().mode;
  index.clipping = trainer.clip_options().clipping;
  index.noise_multiplier = trainer.clip_options().noise_multiplier;
  index.clip_bound = state.clip_bound;
  index.privacy_steps = state.spent.private_steps;
  index.privacy_history = state.spent.history.to_json();
  index.noised_steps = state.spent.noised_steps;
  index.secret_steps = state.spent.secret_steps;
  index.why_no_epsilon = state.spent.why_no_epsilon;
  return index;
}

}  // namespace moonshard::checkpoint
