// Updates on the device and on the host, and what engine auto keeps, by the profile of an H200.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/models/registry.h"
#include "runtime/plan/plan_request.h"
#include "runtime/plan/update_costs.h"
#include "tests/runtime/plan/test_machine.h"

namespace moonshard::plan {
namespace {

PlannedModel model_in(const char* dtype) {
  models::ModelOptions options;
  options.model = "llama3-tiny";
  options.dtype = dtype;
  options.param_dtype = "bfloat16";
  return PlannedModel(models::resolve_model_options(options), 64, /*fused=*/true);
}

// Cores, not memory, bound Adam in 16 bits.
TEST(UpdateCosts, AHostsArithmeticTakesLongerThanTheBytesOf16Bits) {
  const MachineProfile machine = machine_with_round_rates("cuda", 10);
  const auto bytes = [&](const char* dtype, int states) {
    return host_update_seconds(model_in(dtype), machine, 1e9, states) * machine.host_update_per_s /
           1e9;
  };
  EXPECT_NEAR(bytes("float32", 2), 4 * 8, 1e-9) << "values, two states, gradients that come";
  EXPECT_GT(bytes("bfloat16", 2), 1.2 * (6 * 2 + 2 * 4));
  EXPECT_NEAR(bytes("float32", 0), 4 * 4, 1e-9);
}

// Small parameters are many kernels, large ones their bytes.
TEST(UpdateCosts, StatesOf16BitsAreUpdatedSliceBySlice) {
  const MachineProfile machine = machine_with_round_rates("cuda", 10);
  const PlannedModel wide = model_in("float32"), narrow = model_in("bfloat16");
  const auto seconds = [&](const PlannedModel& model, double elements, double pieces, int bytes) {
    return update_seconds(model, machine, {.elements = elements, .pieces = pieces}, 2, bytes,
                          false);
  };
  EXPECT_EQ(seconds(wide, 1e8, 1000, 0), seconds(wide, 1e8, 1, 0));
  EXPECT_GT(seconds(wide, 1e8, 1000, 2), 5 * seconds(wide, 1e8, 1, 2));
  EXPECT_GT(seconds(narrow, 1e8, 1000, 2), 1.3 * seconds(wide, 1e8, 1000, 2));
}

// Peaks that an H200 has measured (plan_drawn_6). Where sums are needed, too, every sample's rows
// may be faster than inputs and norms by Gram matrices: of few samples, not of many.
TEST(PlannedWays, RowsAreKeptWhereTheyAreFaster) {
  const auto gib = [](const Json& more, int64_t ranks = 1) {
    Json options{{"task", "lm"}, {"optimizer", "adamw"}};
    options.update(more);
    Cluster cluster = one_h200();
    cluster.gpus = ranks;
    return step_predicted(step_of("llama3.1-8b", "auto", options), cluster).memory.peak / kGiB;
  };
  EXPECT_NEAR(gib({{"num_layers", 5}, {"batch_size", 7}, {"seq_length", 1536}}), 50.45, 0.5)
      << "rows, also of the head";
  EXPECT_NEAR(gib({{"num_layers", 7},
                   {"seq_length", 1536},
                   {"parallel", "ddp"},
                   {"checkpointing", "block"},
                   {"state_dtype", "bfloat16"}},
                  4),
              30.95, 0.3)
      << "rows, whose sum the others need";
  EXPECT_NEAR(gib({{"num_layers", 11}, {"batch_size", 6}}, 8), 18.17, 0.2) << "inputs";
}

EngineWays ways_of_materialize(const char* name, const Cluster& cluster) {
  const Json asked = step_of(name, "materialize", {{"task", "lm"}, {"num_layers", 2}});
  const experiment::ExperimentOptions options = resolve_for(asked, cluster);
  EngineSituation situation;
  situation.mode = "materialize";
  situation.samples = 2;
  return engine_ways(PlannedModel(options, options.seq_length, cluster.machine), situation,
                     cluster.machine);
}

// Every sample's gradient of a table is filled with zeros and read for its norm, or added to that
// of the head, which shares the weight: two are read, one is written.
TEST(PlannedWays, TablesOfEverySampleAreFilledAndReadOrAdded) {
  const Cluster cluster = one_gpu();
  const double per_s = cluster.machine.element_per_s;
  for (const auto& [name, times] : {std::pair{"llama3.1-8b", 2.25}, {"llama3.2-1b", 4.0}}) {
    const EngineWays ways = ways_of_materialize(name, cluster);
    const LayerWay& table = ways.before.front();
    EXPECT_GT(table.rows_bytes, 1e9) << name;
    EXPECT_NEAR(table.norm_s, times * table.rows_bytes / per_s, 1e-6 * table.norm_s) << name;
    const LayerWay& matrix = *std::ranges::max_element(ways.block, {}, &LayerWay::rows_bytes);
    EXPECT_GT(matrix.norm_s, 2.25 * matrix.rows_bytes / per_s) << name;
    EXPECT_LT(matrix.norm_s, 10 * matrix.rows_bytes / per_s) << name;
  }
}

// An H200 took 22.5 ms where earlier micro-batches had a sum, and 23.7 without one for more than
// twice the rows (plan_drawn_7, plan_drawn_6): a general kernel reads both.
TEST(UpdateCosts, RowsBesideASumAreReadAtHalfTheSpeed) {
  const auto update = [](int64_t samples, int64_t micro_batches) {
    const Json more{{"task", "lm"},
                    {"optimizer", "adamw"},
                    {"batch_size", samples},
                    {"seq_length", 512},
                    {"grad_accum", micro_batches}};
    const Prediction step =
        step_predicted(step_of("vaultgemma-1b", "materialize", more), one_h200());
    for (const auto& [phase, ms] : step.time.phases_ms)
      if (phase == "update") return ms;
    return 0.0;
  };
  EXPECT_NEAR(update(18, 1), 23.7, 0.7);
  EXPECT_NEAR(update(8, 3), 22.5, 0.7);
}

}  // namespace
}  // namespace moonshard::plan
