// Memory of a rank: predicted, held, and the FSDP tutorial's table.
#include <gtest/gtest.h>

#include "runtime/models/registry.h"
#include "runtime/plan/rank_memory.h"
#include "runtime/sharding/unit_policy.h"
#include "runtime/train/trainer.h"

namespace moonshard::plan {
namespace {

constexpr double kGiB = 1073741824.0;

sharding::ShardingOptions wrapper(const std::string& parallel, const std::string& kind,
                                  const std::string& world = "auto") {
  sharding::ShardingOptions options;
  options.parallel = parallel;
  options.sharding = kind;
  options.world = world;
  options.link = "instant";
  return options;
}

TEST(RankMemory, TheTutorialsTableIsReproduced) {
  // Eight Linear(16384, 16384) in float32, batch 8192, SGD, eight ranks: its printed figures.
  models::ModelOptions model;
  model.model = "linear";
  const RankMemory ddp = rank_memory(model, wrapper("ddp", "zero3"), 8, 0, 8192, 1);
  const RankMemory fsdp = rank_memory(model, wrapper("fsdp", "zero3"), 8, 0, 8192, 1);
  EXPECT_EQ(static_cast<double>(ddp.pytorch_after_model) / kGiB, 9.00048828125);
  EXPECT_EQ(static_cast<double>(fsdp.pytorch_after_model) / kGiB, 9.00048828125);
  EXPECT_NEAR(static_cast<double>(ddp.pytorch_after_warmup) / kGiB, 25.0, 0.02);
  EXPECT_NEAR(static_cast<double>(fsdp.pytorch_after_warmup) / kGiB, 3.0, 0.02);
}

// What a rank holds after a step, and what was predicted; gradients and whole units are compared
// where the caller says so.
void expect_as_predicted(const models::ModelOptions& options,
                         const sharding::ShardingOptions& sharding, int world, bool with_gradients,
                         const std::string& where) {
  const bool fsdp = sharding.parallel == "fsdp";
  models::ModelOptions build = options;
  build.deferred = fsdp;
  const std::shared_ptr<models::Model> model = models::make_model(build);
  optim::OptimizerOptions adam;
  adam.optimizer = "adam";
  train::Trainer trainer({model,
                          {},
                          adam,
                          std::make_unique<data::SyntheticData>(model->options(), 2, 8),
                          {},
                          sharding});
  const train::StepReport report = trainer.step();
  const RankMemory plan = rank_memory(options, sharding, world, 2, 2, 8);
  EXPECT_EQ(plan.parameters, report.sharding.parameters) << where;
  EXPECT_EQ(plan.optimizer, trainer.optimizer().state_bytes()) << where;
  if (with_gradients) {
    EXPECT_EQ(plan.gradients, report.sharding.gradients) << where;
  }
  if (fsdp) {
    EXPECT_EQ(plan.gathered, report.sharding.whole_peak) << where;
  }
}

TEST(RankMemory, WhatIsPredictedIsWhatTheWrappersHoldToTheByte) {
  for (const char* preset : {"linear-tiny", "llama3.2-tiny", "dit-tiny"}) {
    for (const std::string changed :
         {"", "frozen", "frozen body", "mixed precision", "lora", "kept lora"}) {
      if (changed.starts_with("frozen") && std::string(preset) != "llama3.2-tiny") continue;
      models::ModelOptions options;
      options.model = preset;
      options.device = "cpu";
      if (changed == "frozen") options.frozen = "model.norm.weight,*layers.0.mlp*";
      if (changed == "frozen body") {
        options.num_layers = 4;
        options.trained = "*layers.3.*";
      }
      const bool has_adapters = changed.ends_with("lora");
      if (has_adapters) options.lora_rank = 2;
      if (has_adapters || changed == "mixed precision") options.param_dtype = "bfloat16";
      for (const int world : {1, 2, 3, 4}) {
        for (const char* kind : {"ddp", "zero3", "zero2", "zero2_replicated"}) {
          const bool ddp = std::string(kind) == "ddp";
          auto sharding =
              wrapper(ddp ? "ddp" : "fsdp", ddp ? "zero3" : kind, fmt::format("fake:{}", world));
          sharding.keep_frozen = !ddp && changed == "kept lora";
          sharding.forward_prefetch = ddp || changed != "frozen body";
          if (!ddp && world == 4 && changed.empty()) sharding.replicate = 2;
          expect_as_predicted(options, sharding, world, !(ddp && world == 1),
                              fmt::format("{} {} {} {}", preset, kind, world, changed));
        }
      }
    }
  }
}

TEST(RankMemory, WhatIsPredictedHoldsWithPoliciesOfUnitsToTheByte) {
  const std::vector<std::string> policies = {
      "*.1: reshard = no", "*.0: dtype = float32; *.1: dtype = bfloat16",
      "*.1: offload = yes, dtype = float64", "*: reshard = no", "*: reshard = yes"};
  for (const char* preset : {"linear-tiny", "llama3.2-tiny", "dit-tiny"}) {
    for (const std::string changed : {"", "mixed precision", "lora", "kept lora", "tied"}) {
      models::ModelOptions options;
      options.model = preset;
      options.device = "cpu";
      models::family_of(options).shrink(options);
      const bool has_adapters = changed.ends_with("lora");
      if (has_adapters) options.lora_rank = 2;
      if (has_adapters || changed == "mixed precision") options.param_dtype = "bfloat16";
      if (changed == "tied" && std::string(preset) == "llama3.2-tiny")
        options.tie_embeddings = "yes";
      for (const int world : {1, 3, 4}) {
        for (const char* kind : {"zero3", "zero2", "zero2_replicated"}) {
          for (const std::string& policy : policies) {
            for (const bool root : {false, true}) {
              const bool whole = std::string(kind) == "zero2_replicated";
              if (whole && (root || policy.find("reshard") != std::string::npos)) continue;
              auto sharding = wrapper("fsdp", kind, fmt::format("fake:{}", world));
              sharding.unit_policies = policy;
              sharding.reshard_root = root;
              sharding.keep_frozen = changed == "kept lora";
              if (world == 4) sharding.replicate = 2;
              sharding.limit_all_gathers = world != 3;
              // With offload, units are updated as soon as their sums are complete.
              expect_as_predicted(options, sharding, world,
                                  world > 1 && !sharding::offloads_some(sharding),
                                  fmt::format("{} {} {} {} '{}' root {}", preset, kind, world,
                                              changed, policy, root));
            }
          }
        }
      }
    }
  }
}

TEST(RankMemory, StatesOf16BitsAreHalfAsLarge) {
  for (const char* kind : {"ddp", "zero3"}) {
    for (const char* dtype : {"float32", "bfloat16"}) {
      const bool ddp = std::string(kind) == "ddp";
      models::ModelOptions options;
      options.model = "llama3-tiny";
      options.device = "cpu";
      options.dtype = dtype;
      options.deferred = !ddp;
      const auto sharding = wrapper(ddp ? "ddp" : "fsdp", "zero3", "fake:2");
      const std::shared_ptr<models::Model> model = models::make_model(options);
      optim::OptimizerOptions adam;
      adam.optimizer = "adam";
      adam.state_dtype = "bfloat16";
      train::Trainer trainer({model,
                              {},
                              adam,
                              std::make_unique<data::SyntheticData>(model->options(), 2, 8),
                              {},
                              sharding});
      trainer.step();
      const RankMemory plan = rank_memory(options, sharding, 2, 2, 2, 8, /*state_bytes=*/2);
      EXPECT_EQ(plan.optimizer, trainer.optimizer().state_bytes()) << kind << " " << dtype;
    }
  }
}

TEST(RankMemory, ALoraStepWithAKeptBaseMovesAdaptersAlone) {
  for (const bool kept : {false, true}) {
    models::ModelOptions options;
    options.model = "llama3-tiny";
    options.device = "cpu";
    options.lora_rank = 2;
    options.deferred = true;
    auto sharding = wrapper("fsdp", "zero3", "fake:2");
    sharding.keep_frozen = kept;
    const std::shared_ptr<models::Model> model = models::make_model(options);
    train::Trainer trainer({model,
                            {},
                            {},
                            std::make_unique<data::SyntheticData>(model->options(), 2, 8),
                            {},
                            sharding});
    int64_t trained = 0, all = 0;
    for (const auto& parameter : model->parameters()) {
      all += parameter->value.numel();
      if (parameter->trainable) trained += parameter->value.numel();
    }
    for (int step = 0; step < 3; ++step) {
      int64_t gathered = 0;
      for (const comm::Traffic& traffic : trainer.step().traffic)
        if (traffic.operation == "all_gather") gathered += traffic.bytes;
      // Rows are padded; a unit is gathered twice a step, the root and the last one once.
      const bool is_first = step == 0;
      if (kept && !is_first) {
        EXPECT_LT(gathered, 3 * trained * 4);
      } else {
        EXPECT_GT(gathered, all * 4 / 2);
      }
    }
  }
}

TEST(RankMemory, APrivateStepHoldsTheGradientsOfOneUnitAtATime) {
  for (const char* preset : {"linear-tiny", "llama3.2-tiny", "dit-tiny"}) {
    models::ModelOptions options;
    options.model = preset;
    options.device = "cpu";
    for (const char* mode : {"flash_bookkeeping", "ghost"}) {
      for (const int world : {1, 3}) {
        for (const char* kind : {"ddp", "zero3", "zero2"}) {
          const bool ddp = std::string(kind) == "ddp";
          if (ddp && world == 1) continue;
          auto sharding =
              wrapper(ddp ? "ddp" : "fsdp", ddp ? "zero3" : kind, fmt::format("fake:{}", world));
          if (sharding.parallel == "ddp") sharding.bucket_mb = 0.1;
          const std::shared_ptr<models::Model> model = models::make_model(options);
          privacy::ClipOptions clip;
          clip.mode = mode;
          train::Trainer trainer({model,
                                  clip,
                                  {},
                                  std::make_unique<data::SyntheticData>(model->options(), 2, 8),
                                  {},
                                  sharding});
          const train::StepReport report = trainer.step();
          const RankMemory plan = rank_memory(options, sharding, world, 0, 2, 8);
          const std::string where = fmt::format("{} {} {} {}", preset, mode, kind, world);
          EXPECT_EQ(plan.private_gradients, report.sharding.gradients) << where;
          EXPECT_LT(plan.private_gradients, plan.gradients) << where;
        }
      }
    }
  }
}

}  // namespace
}  // namespace moonshard::plan
