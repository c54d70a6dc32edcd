// The runtime from C++, without Lua: one model, one private trainer, a few steps.
// Build: see CMakeLists.txt beside this file.
#include <cstdio>

#include "runtime/models/registry.h"
#include "runtime/train/trainer.h"

int main() {
  using namespace moonshard;
  profile::install_cpu_memory_hook();

  models::ModelOptions options;
  options.model = "llama3-tiny";
  options.device = "cpu";
  std::shared_ptr<models::Model> model = models::make_model(options);

  privacy::ClipOptions clip;
  clip.mode = "materialize";
  clip.noise_multiplier = 0.5;
  optim::OptimizerOptions optimizer;
  optimizer.lr = 1e-2;
  train::Trainer trainer({.model = model,
                          .clip = clip,
                          .optimizer = optimizer,
                          .data = std::make_unique<data::SyntheticData>(model->options(), 4, 32)});

  for (int i = 0; i < 3; ++i) {
    const train::StepReport report = trainer.step();
    std::printf("step %d: loss %.4f, %.1f ms, %.0f %% of samples clipped\n",
                static_cast<int>(report.step), report.loss, report.time_ms,
                100 * report.clip_fraction);
  }
  return 0;
}
