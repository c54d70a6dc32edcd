// What the plan panel asks the program, and what it makes of the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/errors.h"
#include "viewer/data/plan_answer.h"

namespace moonshard::viewer {
namespace {

using testing::Contains;
using testing::IsSupersetOf;
using testing::Not;

TEST(PlanWords, PredictTheKnobsAsTheyStand) {
  PlanKnobs knobs;
  knobs.wrapper = "zero2";
  knobs.batch = 4;
  knobs.offload = true;
  EXPECT_THAT(prediction_words(knobs),
              IsSupersetOf({"plan", "--json", "--no-search", "fsdp", "zero2", "--cpu-offload"}));
  knobs.wrapper = "ddp";  // has nothing to offload
  EXPECT_THAT(prediction_words(knobs), Not(Contains("--cpu-offload")));
  EXPECT_THAT(prediction_words(knobs), Not(Contains("--sharding")));
}

TEST(PlanWords, NameTheModelWithWhatHasNoKnob) {
  PlanKnobs knobs;
  EXPECT_EQ(model_words(knobs), "llama3.1-8b");
  knobs.more = {"--task", "classify", "--num-layers", "5"};
  EXPECT_EQ(model_words(knobs), "llama3.1-8b (task classify, num layers 5)");
}

TEST(PlanWords, SearchAmongConfigurationsOfAsManySamples) {
  PlanKnobs knobs;
  knobs.gpus = 8;
  knobs.nodes = 2;
  knobs.batch = 4;
  knobs.micro_batches = 3;
  EXPECT_THAT(search_words(knobs), IsSupersetOf({"--global-batch", "192"}));
  EXPECT_THAT(search_words(knobs), Not(Contains("--no-search")));
}

TEST(PlanAnswer, HasOwnersPhasesAndTheFront) {
  const PlanAnswer answer = plan_answer(R"({"machine": {"device": "NVIDIA H200", "source": "x"},
    "memory_bytes": 1000, "ranks": 8, "tried": 30, "assumptions": ["times: measured"],
    "plans": [{"peak_memory_bytes": 400, "step_ms": 12, "tokens_per_s": 5, "fits": true,
               "options": {"parallel": "fsdp", "sharding": "zero3", "batch_size": 4, "grad_accum": 2,
                           "checkpointing": "block", "cpu_offload": true},
               "breakdown": [{"owner": "parameters", "bytes": 300}], "phases_ms": {"forward": 4},
               "likely": {"step_ms": {"low": 11, "high": 14, "points": 9}}}],
    "too_large": {}, "front": []})");
  ASSERT_EQ(answer.plans.size(), 1u);
  EXPECT_EQ(answer.plans[0].words, "zero3, batch 4 x 2, block checkpointing, offload");
  EXPECT_EQ(answer.plans[0].owners[0].first, "parameters");
  EXPECT_EQ(answer.plans[0].phases[0].second, 4);
  EXPECT_EQ(answer.plans[0].low_ms, 11);
  EXPECT_EQ(answer.plans[0].high_ms, 14);
  EXPECT_TRUE(answer.too_large.empty());
  EXPECT_EQ(answer.ranks, 8);
  EXPECT_THROW(plan_answer("{\"plans\": ["), IoError);
}

}  // namespace
}  // namespace moonshard::viewer
