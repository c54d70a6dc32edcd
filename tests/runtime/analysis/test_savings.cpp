// What options would save of the memory that was held when it ran out.
#include "runtime/analysis/savings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moonshard::analysis {
namespace {

constexpr double kUnit = 1 << 20;

HeldMemory held_by(const Json& options) {
  HeldMemory held;
  held.options = Json{{"mode", "bookkeeping"},
                      {"batch_size", 8},
                      {"grad_accum", 1},
                      {"num_layers", 10},
                      {"hidden_dim", 64},
                      {"seq_length", 16},
                      {"checkpointing", "none"},
                      {"param_dtype", "float32"},
                      {"parallel", "none"},
                      {"sharding", "zero3"},
                      {"cpu_offload", false},
                      {"device", "cuda"},
                      {"task", "lm"}};
  held.options.update(options);
  held.owners = {{"parameters", 100 * kUnit},      {"gradients", 100 * kUnit},
                 {"optimizer_state", 200 * kUnit}, {"activations", 400 * kUnit},
                 {"engine_kept", 80 * kUnit},      {"gathered_parameters", 60 * kUnit}};
  return held;
}

// Bytes of the saving whose change begins so; -1 when there is none.
double saved(const HeldMemory& held, const std::string& change) {
  for (const records::Saving& saving : memory_savings(held))
    if (saving.change.starts_with(change)) return saving.bytes;
  return -1;
}

TEST(MemorySavings, AreComputedFromTheOwnersOfTheBreakdown) {
  const HeldMemory held = held_by(Json::object());
  EXPECT_EQ(saved(held, "batch_size = 4, grad_accum = 2"), 240 * kUnit);
  EXPECT_EQ(saved(held, "mode = flash"), 80 * kUnit);
  EXPECT_EQ(saved(held, "parallel = fsdp on 2 ranks"), 200 * kUnit);
  EXPECT_EQ(saved(held, "param_dtype = bfloat16"), 270 * kUnit);
  // One input of 8 x 16 x 64 floats per block stays, and a tenth: one block's insides.
  const double inputs = 10.0 * 8 * 16 * 64 * 4;
  EXPECT_EQ(saved(held, "checkpointing = block"), 360 * kUnit - inputs);
  const auto list = memory_savings(held);
  for (size_t i = 1; i < list.size(); ++i) EXPECT_GE(list[i - 1].bytes, list[i].bytes);
}

TEST(MemorySavings, NameOnlyWhatIsNotDoneYet) {
  HeldMemory held = held_by({{"parallel", "fsdp"}, {"mode", "flash"}, {"checkpointing", "block"}});
  held.ranks = 4;
  EXPECT_EQ(saved(held, "parallel"), -1);
  EXPECT_EQ(saved(held, "mode"), -1);
  EXPECT_EQ(saved(held, "checkpointing"), -1);
  EXPECT_EQ(saved(held, "sharding"), -1) << "it is zero3 already";
  EXPECT_EQ(saved(held, "8 ranks instead of 4"), 200 * kUnit);
  EXPECT_EQ(saved(held, "cpu_offload = true"), 400 * kUnit);
  held.options["sharding"] = "zero2";
  EXPECT_EQ(saved(held, "sharding = zero3"), 42 * kUnit) << "three of ten units stay whole";
  held.options["batch_size"] = 1;
  EXPECT_EQ(saved(held, "batch_size"), -1);
  held.options["device"] = "cpu";
  EXPECT_EQ(saved(held, "cpu_offload"), -1);
}

TEST(MemorySavings, ScoresOfALongContextCanBeMadeInChunks) {
  HeldMemory held = held_by({{"seq_length", 4096}, {"vocab_size", 1000}, {"head_chunk", 0}});
  const double scores = 4.0 * 1000 * (8 * 4096 - 512), rows = 8.0 * 1000 * 64 * 4;
  EXPECT_EQ(saved(held, "head_chunk = 512"), scores - rows);
  held.options["mode"] = "flash";
  EXPECT_EQ(saved(held, "head_chunk = 512"), scores) << "no rows are kept";
  held.options["head_chunk"] = 512;
  EXPECT_EQ(saved(held, "head_chunk"), -1);
  held.options["head_chunk"] = 0;
  held.options["task"] = "classify";
  EXPECT_EQ(saved(held, "head_chunk"), -1);
}

TEST(MemorySavings, AdaptersWhereWeightsAndStatesAreMostOfIt) {
  HeldMemory held = held_by({{"dtype", "float32"}});
  EXPECT_EQ(saved(held, "lora_rank = 16"), -1) << "activations are";
  held.owners = {
      {"parameters", 100 * kUnit}, {"gradients", 90 * kUnit}, {"activations", 10 * kUnit}};
  EXPECT_EQ(saved(held, "lora_rank = 16, dtype = bfloat16"), 140 * kUnit);
  held.options["dtype"] = "bfloat16";
  EXPECT_EQ(saved(held, "lora_rank = 16"), 90 * kUnit);
  held.options["lora_rank"] = 8;
  EXPECT_EQ(saved(held, "lora_rank"), -1);
}

TEST(MemorySavings, LeaveOutWhatIsNotWorthIt) {
  HeldMemory held = held_by(Json::object());
  held.owners = {{"activations", 1000 * kUnit}, {"engine_kept", 5 * kUnit}};
  EXPECT_EQ(saved(held, "mode = flash"), -1);
  EXPECT_TRUE(memory_savings({Json::object(), {}, 1}).empty());
}

}  // namespace
}  // namespace moonshard::analysis
