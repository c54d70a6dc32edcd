// A Llama of some thousand weights, for tests of wrappers, and a trainer of it.
#pragma once

#include <memory>
#include <string>

#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"

namespace moonshard {

inline models::ModelOptions small_llama(bool deferred, const char* task = "lm") {
  models::ModelOptions options;
  options.model = "llama3-tiny";
  options.task = task;
  options.device = "cpu";
  options.hidden_dim = 24;
  options.intermediate_dim = 38;
  options.vocab_size = 29;
  options.head_dim = 6;
  options.num_layers = 4;
  options.deferred = deferred;
  return options;
}

/// The same with two blocks; another name is that of a tiny preset as it is.
inline models::ModelOptions small_model(const std::string& name, const std::string& tied) {
  models::ModelOptions options;
  if (name == "llama3-tiny") {
    options = small_llama(/*deferred=*/false);
    options.num_layers = 2;
    options.tie_embeddings = tied;
  }
  options.model = name;
  options.device = "cpu";
  return options;
}

struct SmallTraining {
  std::shared_ptr<models::Model> model;
  std::unique_ptr<train::Trainer> trainer;
};

/// Two synthetic samples of six tokens in a step, noise that can be drawn again, lr = 0.01.
inline SmallTraining small_training(const models::ModelOptions& options,
                                    const sharding::ShardingOptions& sharding,
                                    const privacy::ClipOptions& clip,
                                    optim::OptimizerOptions optimizer,
                                    const train::StepOptions& step,
                                    std::shared_ptr<privacy::StepHooks> hooks = nullptr) {
  SmallTraining run;
  run.model = models::make_model(options);
  optimizer.lr = 0.01;
  run.trainer = std::make_unique<train::Trainer>(train::TrainerParts{
      run.model, clip, optimizer, std::make_unique<data::SyntheticData>(run.model->options(), 2, 6),
      step, sharding, nullptr, privacy::reproducible_noise(), std::move(hooks)});
  return run;
}

}  // namespace moonshard
