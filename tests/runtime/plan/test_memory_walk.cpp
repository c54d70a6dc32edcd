// What holds of every walk through a step's memory, whatever the model, the engine and the wrapper.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <tuple>

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

}  // namespace
}  // namespace moonshard::plan
