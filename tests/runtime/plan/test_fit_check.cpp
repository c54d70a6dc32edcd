// What is refused before it starts, what starts with a warning, and whether the advice is true.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include <ATen/ATen.h>

#include "runtime/comm/world.h"
#include "runtime/experiment/experiment.h"
#include "runtime/plan/fit_check.h"
#include "runtime/plan/prediction.h"

namespace moonshard::plan {
namespace {

using experiment::ExperimentOptions;

ExperimentOptions resolved_of(const char* model, const char* mode, int64_t batch_size) {
  ExperimentOptions options;
  options.model = model;
  options.mode = mode;
  options.batch_size = batch_size;
  options.device = "cpu";
  options.seed = 1;
  return experiment::resolve_experiment(options);
}

// A frozen model of 14 GiB beside 10 of activations.
ExperimentOptions adapted_llama() {
  ExperimentOptions options;
  options.model = "llama3.1-8b";
  options.dtype = "bfloat16";
  options.lora_rank = 8;
  options.device = "cpu";
  return experiment::resolve_experiment(options);
}

Room room_of(double gib, int ranks = 1, c10::Device device = c10::kCPU) {
  Room room;
  room.device = device;
  room.ranks = ranks;
  room.memory = gib * kGiB;
  return room;
}

double sum_of(const std::vector<records::OwnedBytes>& owners) {
  double sum = 0;
  for (const records::OwnedBytes& row : owners) sum += row.bytes;
  return sum;
}

// The same configuration's peak, without any help of the code that is tested.
double peak_of(const ExperimentOptions& options, const Room& room) {
  const FitCheck check = check_fit(options, {room.device, room.ranks, 1, 1.0, -1});
  return check.refusal ? sum_of(check.refusal->owners) : 0;
}

TEST(FitCheck, RefusesWhatCannotFitAndNothingElse) {
  ExperimentOptions options;
  options.model = "linear";
  options.hidden_dim = 1'000'000;  // 32 TB of weights
  options.device = "cpu";
  options.profile = "off";
  options.seed = 1;
  const records::Result refused = experiment::measure_experiment(options);
  EXPECT_EQ(refused.status, "oom");
  EXPECT_EQ(refused.phase, "plan");
  EXPECT_NE(refused.error.find("check_memory = false"), std::string::npos) << refused.error;
  // By these words a script's error is told to be a refusal: exit code 3, no traceback.
  EXPECT_NE(refused.error.find(kCannotFit), std::string::npos) << refused.error;
  EXPECT_TRUE(refused.steps.empty());
  EXPECT_GT(refused.memory.peak_bytes, refused.bytes_free);

  const auto world = comm::make_world("auto", "nvlink");
  const auto is_refused = [&](const ExperimentOptions& of) {
    return refusal_or_warning(of, c10::kCPU, *world).has_value();
  };
  const ExperimentOptions resolved = experiment::resolve_experiment(options);
  EXPECT_TRUE(is_refused(resolved));
  ExperimentOptions other = resolved;
  other.check_memory = false;
  EXPECT_FALSE(is_refused(other));
  other = resolved;
  other.memory_limit_mb = 1;  // the allocator refuses, where it happens
  EXPECT_FALSE(is_refused(other));
  options.model = "llama3-tiny";
  options.hidden_dim = 0;
  EXPECT_FALSE(is_refused(experiment::resolve_experiment(options)));
}

TEST(FitCheck, ACpuIsRefusedWhatItsKernelWouldKill) {
  const ExperimentOptions options = adapted_llama();
  const double peak = peak_of(options, room_of(1)) / kGiB;
  ASSERT_GT(peak, 23);
  ASSERT_LT(peak, 26);
  // Two thirds of it are frozen weights, which are known exactly.
  const FitCheck check = check_fit(options, room_of(peak / 1.08));
  ASSERT_TRUE(check.refusal);
  EXPECT_TRUE(check.warning.empty());
  EXPECT_NE(check.refusal->text.find("for a step, by prediction"), std::string::npos)
      << check.refusal->text;
  EXPECT_NEAR(check.refusal->needed, peak * kGiB, 1e6);
  EXPECT_FALSE(check.refusal->savings.empty());
}

TEST(FitCheck, WhatMayNotFitIsNotWithoutAWord) {
  const ExperimentOptions options = adapted_llama();
  const double peak = peak_of(options, room_of(1)) / kGiB;
  for (const double share : {1.02, 0.98}) {
    const FitCheck check = check_fit(options, room_of(peak / share));
    EXPECT_FALSE(check.refusal) << share;
    EXPECT_NE(check.warning.find("may not fit into memory"), std::string::npos) << check.warning;
    EXPECT_NE(check.warning.find(" saves "), std::string::npos) << check.warning;
    EXPECT_EQ(check.warning.find('\n'), std::string::npos) << check.warning;
  }
  const FitCheck good = check_fit(options, room_of(peak * 1.1));
  EXPECT_FALSE(good.refusal);
  EXPECT_EQ(good.warning, "");
}

TEST(FitCheck, AWarningIsPrintedAndRefusesNothing) {
  const auto world = comm::make_world("auto", "nvlink");
  const ExperimentOptions thousand = resolved_of("llama3-tiny", "none", 1000);
  const double of_thousand = peak_of(thousand, room_of(1e-3));
  const double there_is = room_for(thousand, c10::kCPU, *world).memory;
  const auto as_large = static_cast<int64_t>(1000 * there_is / of_thousand);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(refusal_or_warning(resolved_of("llama3-tiny", "none", as_large), c10::kCPU, *world));
  EXPECT_FALSE(refusal_or_warning(resolved_of("llama3-tiny", "none", 1), c10::kCPU, *world));
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(printed.starts_with("moonshard: warning: llama3-tiny may not fit into memory"))
      << printed;
  EXPECT_EQ(std::ranges::count(printed, '\n'), 1) << printed;
}

TEST(FitCheck, AGpuIsRefusedOnlyWhatNoErrorOfAPredictionExplains) {
  const c10::Device gpu(c10::kCUDA);
  ExperimentOptions options = resolved_of("llama3-tiny", "none", 4096);
  options.device = "cuda";
  const double peak = peak_of(options, room_of(1, 1, gpu)) / kGiB;
  EXPECT_TRUE(check_fit(options, room_of(peak / 1.6, 1, gpu)).refusal);
  const FitCheck near = check_fit(options, room_of(peak / 1.4, 1, gpu));
  EXPECT_FALSE(near.refusal);
  EXPECT_NE(near.warning.find("an allocation may fail"), std::string::npos) << near.warning;
  EXPECT_EQ(check_fit(options, room_of(peak * 1.05, 1, gpu)).warning, "");
}

TEST(FitCheck, EveryEngineIsCheckedByTheLeastThatItNeeds) {
  for (const char* mode :
       {"none", "bookkeeping", "flash_bookkeeping", "ghost", "flash", "materialize", "auto"}) {
    const ExperimentOptions huge = resolved_of("llama3-tiny", mode, 200'000);
    const FitCheck check = check_fit(huge, room_of(20));
    ASSERT_TRUE(check.refusal) << mode;
    ASSERT_FALSE(check.refusal->savings.empty()) << mode;
    EXPECT_FALSE(check_fit(resolved_of("llama3-tiny", mode, 2), room_of(20)).refusal) << mode;
  }
}

// Auto may keep the smaller of inputs and rows, and runs backward twice where its budget is small.
TEST(FitCheck, AnEngineThatDecidesLaterIsRefusedByItsSmallestWay) {
  const auto short_samples = [](const char* mode) {
    ExperimentOptions options = resolved_of("llama3.2-1b", mode, 8);
    options.seq_length = 512;
    return options;
  };
  const auto gib_of = [](const ExperimentOptions& of) { return peak_of(of, room_of(0.01)) / kGiB; };
  const double inputs = gib_of(short_samples("bookkeeping"));
  ASSERT_GT(gib_of(short_samples("materialize")), 2 * inputs);
  const FitCheck check = check_fit(short_samples("auto"), room_of(1.5 * inputs));
  EXPECT_FALSE(check.refusal);
  EXPECT_NE(check.warning.find("memory_budget_mb"), std::string::npos) << "rows may be faster";
  EXPECT_EQ(check_fit(short_samples("bookkeeping"), room_of(1.5 * inputs)).warning, "");
  EXPECT_TRUE(check_fit(short_samples("auto"), room_of(0.7 * inputs)).refusal);

  const auto recomputed = [](const char* mode) {
    ExperimentOptions options = resolved_of("llama3-tiny", mode, 64);
    options.seq_length = 256;
    options.num_layers = 16;
    options.checkpointing = "block";
    return options;
  };
  const double two_passes = gib_of(recomputed("flash"));
  ASSERT_LT(two_passes, 0.5 * gib_of(recomputed("bookkeeping")));
  ExperimentOptions options = recomputed("auto");
  EXPECT_TRUE(check_fit(options, room_of(two_passes)).refusal);
  options.memory_budget_mb = 1;
  EXPECT_FALSE(check_fit(options, room_of(two_passes)).refusal);
  // What a script's engine keeps is unknown, but it has a step to run.
  options = recomputed("flash");
  options.mode = "mine";
  EXPECT_FALSE(check_fit(options, room_of(two_passes)).refusal);
  EXPECT_TRUE(check_fit(options, room_of(two_passes / 2)).refusal);
}

TEST(FitCheck, RanksOfOneHostHaveAPartOfItsMemory) {
  const auto one = comm::make_world("auto", "nvlink"), fake = comm::make_world("fake:4", "nvlink");
  const ExperimentOptions options = resolved_of("llama3-tiny", "none", 1);
  const Room whole = room_for(options, c10::kCPU, *one, 1024);
  EXPECT_EQ(whole.sharers, 1);
  EXPECT_GT(whole.memory, 0);
  const Room alone = room_for(options, c10::kCPU, *fake);
  EXPECT_EQ(alone.ranks, 4);
  EXPECT_EQ(alone.sharers, 1) << "the other ranks of a fake world hold nothing";
  EXPECT_NEAR(alone.memory, whole.memory, 0.5 * whole.memory);

  Room room = room_of(1, 4);
  room.sharers = 4;
  ExperimentOptions wide = resolved_of("llama3-tiny", "none", 4096);
  wide.parallel = "ddp";
  const FitCheck check = check_fit(wide, room);
  ASSERT_TRUE(check.refusal);
  EXPECT_NE(check.refusal->text.find("1.0 GiB on cpu for each of the 4 ranks that share it"),
            std::string::npos)
      << check.refusal->text;
}

// Each saving is the difference of two predictions, and more ranks of one host save nothing of it.
TEST(FitCheck, AdviceIsTrueAndSortedBySize) {
  ExperimentOptions options = resolved_of("llama3.2-1b", "ghost", 2);
  options.optimizer = "adam";
  options.parallel = "fsdp";
  const Room room = room_of(8, 2);
  const FitCheck check = check_fit(options, room);
  ASSERT_TRUE(check.refusal);
  const std::vector<records::Saving>& savings = check.refusal->savings;
  ASSERT_GT(savings.size(), 1u);
  const double peak = sum_of(check.refusal->owners);
  for (size_t i = 0; i < savings.size(); ++i) {
    if (i > 0) {
      EXPECT_LE(savings[i].bytes, savings[i - 1].bytes);
    }
    EXPECT_EQ(savings[i].change.find("ranks"), std::string::npos) << savings[i].change;
    ExperimentOptions changed = options;
    if (savings[i].change == "batch_size = 1, grad_accum = 2") {
      changed.batch_size = 1;
      changed.grad_accum = 2;
    } else if (savings[i].change == "checkpointing = block") {
      changed.checkpointing = "block";
    } else if (savings[i].change == "mode = flash") {
      changed.mode = "flash";
    } else {
      continue;
    }
    EXPECT_NEAR(peak - peak_of(changed, room), savings[i].bytes, 2) << savings[i].change;
  }
}

// Two micro-batches are predicted for any number of them.
TEST(FitCheck, ManyMicroBatchesTakeTheirData) {
  ExperimentOptions few = resolved_of("llama3-tiny", "bookkeeping", 64), many = few;
  few.grad_accum = 4;
  many.grad_accum = 1000;
  const auto owners_of = [](const ExperimentOptions& options) {
    const FitCheck check = check_fit(options, room_of(1e-6));
    std::map<std::string, double> owners;
    for (const records::OwnedBytes& row : check.refusal->owners) owners[row.owner] = row.bytes;
    return owners;
  };
  auto first = owners_of(few), second = owners_of(many);
  EXPECT_NEAR(second["data"], 250 * first["data"], 10);
  first.erase("data");
  second.erase("data");
  EXPECT_EQ(first, second);
}

TEST(FitCheck, TheLargestBatchFitsAndSoDoesItsAccumulation) {
  const ExperimentOptions options = resolved_of("llama3-tiny", "auto", 4096);
  const Room room = room_of(1);
  const FitCheck check = check_fit(options, room);
  ASSERT_TRUE(check.refusal);
  const auto& savings = check.refusal->savings;
  const auto found = std::ranges::find_if(
      savings, [](const records::Saving& s) { return s.change.starts_with("batch_size = "); });
  ASSERT_NE(found, savings.end());
  ExperimentOptions smaller = options;
  smaller.batch_size = std::stoll(found->change.substr(std::string("batch_size = ").size()));
  ASSERT_GT(smaller.batch_size, 1);
  EXPECT_FALSE(check_fit(smaller, room).refusal);
  EXPECT_LE(peak_of(smaller, room), room.memory);
  EXPECT_NEAR(sum_of(check.refusal->owners) - peak_of(smaller, room), found->bytes, 2);
  EXPECT_NE(found->reason.find("as many samples in a step"), std::string::npos) << found->reason;
}

}  // namespace
}  // namespace moonshard::plan
