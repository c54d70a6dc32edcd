// What holds of every walk through a step's memory, whatever the model, the engine and the wrapper.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "tests/runtime/plan/test_machine.h"

namespace moonshard::plan {
namespace {

// A walk that lets go of more than it counted says less than is held from then on.
void expect_sound(const Json& options, const Cluster& cluster) {
  const MemoryPlan memory = step_predicted(options, cluster).memory;
  const double sum = std::accumulate(memory.at_peak.begin(), memory.at_peak.end(), 0.0);
  EXPECT_NEAR(sum, memory.peak, 16) << options;
  EXPECT_GE(memory.lowest, -16) << options;
}

using Step = std::tuple<const char*, const char*, int, int, const char*>;
class MemoryOfEveryStep : public ::testing::TestWithParam<Step> {};

TEST_P(MemoryOfEveryStep, IsWhatItsOwnersHold) {
  const auto& [model, mode, lora_rank, micro_batches, checkpointing] = GetParam();
  Json options{{"model", model},         {"mode", mode},
               {"lora_rank", lora_rank}, {"grad_accum", micro_batches},
               {"parallel", "fsdp"},     {"batch_size", 2},
               {"compile", "no"},        {"param_dtype", "bfloat16"}};
  if (std::string(model) != "linear-tiny") options["checkpointing"] = checkpointing;
  for (Cluster cluster : {one_gpu(), one_cpu()}) {
    for (const int ranks : {1, 2}) {
      cluster.gpus = ranks;
      expect_sound(options, cluster);
    }
  }
}

using ::testing::Combine;
using ::testing::Values;
INSTANTIATE_TEST_SUITE_P(OfModelsAndEngines, MemoryOfEveryStep,
                         Combine(Values("llama3.2-1b", "gemma-3-1b", "qwen2.5-1.5b", "dit-xl/2",
                                        "linear-tiny"),
                                 Values("none", "flash", "ghost", "bookkeeping",
                                        "flash_bookkeeping", "materialize", "auto"),
                                 /*lora_rank=*/Values(0, 64), /*micro_batches=*/Values(1, 3),
                                 Values("none", "block", "keep_attention")));

// A CPU's blocks keep less of layers that are not trained, and as much less is let go of.
TEST(MemoryOfPartlyTrainedSteps, IsWhatItsOwnersHold) {
  const std::map<std::string, std::vector<Json>> parts = {
      {"decoder",
       {{{"frozen", "*mlp*"}},
        {{"trained", "*norm*"}},
        {{"trained", "*o_proj*"}},
        {{"trained", "model.layers.0.*"}},
        {{"lora_rank", 8}, {"lora_targets", "down_proj"}},
        {{"lora_rank", 8}, {"lora_targets", "q_proj,v_proj"}}}},
      {"dit-xl-tiny",
       {{{"frozen", "*mlp*"}},
        {{"frozen", "*adaLN*"}},
        {{"trained", "blocks.1.*"}},
        {{"lora_rank", 8}, {"lora_targets", "fc2"}},
        {{"lora_rank", 8}, {"lora_targets", "attn.qkv"}}}},
      {"linear-tiny", {Json::object(), {{"frozen", "layers.0.*"}}, {{"frozen", "*.weight"}}}}};
  for (const char* model : {"llama3-tiny", "gemma3-tiny", "dit-xl-tiny", "linear-tiny"}) {
    const bool has_blocks = std::string(model) != "linear-tiny";
    for (const char* mode : {"none", "ghost", "bookkeeping", "materialize"}) {
      for (const char* checkpointing : {"none", "block"}) {
        for (const Json& part : parts.contains(model) ? parts.at(model) : parts.at("decoder")) {
          Json options{{"model", model}, {"mode", mode}, {"batch_size", 4}};
          options.update(part);
          if (has_blocks) options["num_layers"] = 3;
          if (has_blocks) options["checkpointing"] = checkpointing;
          expect_sound(options, one_cpu());
        }
      }
    }
  }
}

// What is not kept is not there: next to nothing of an attention that no gradient reaches.
TEST(MemoryOfPartlyTrainedSteps, KeepsLessThanWhereAllIsTrained) {
  const auto activations = [](const Json& more) {
    Json options{{"model", "llama3-tiny"}, {"mode", "none"},  {"task", "classify"},
                 {"batch_size", 8},        {"num_layers", 1}, {"hidden_dim", 256},
                 {"last_block", "all"}};
    options.update(more);
    const MemoryPlan memory = step_predicted(options, one_cpu()).memory;
    return memory.at_peak[static_cast<size_t>(Holder::Activations)];
  };
  const double all = activations({{"lora_rank", 8}});
  EXPECT_LT(activations({{"lora_rank", 8}, {"lora_targets", "down_proj"}}), 0.75 * all);
  EXPECT_LT(activations({{"trained", "*mlp*"}}), 0.85 * all);
  EXPECT_LT(activations({{"frozen", "*mlp*"}}), 0.95 * all);
}

}  // namespace
}  // namespace moonshard::plan
