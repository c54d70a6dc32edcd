// Private steps update each unit as soon as its sum is whole. An observer of the gradients makes
// the same step wait until its end: both ways give the same digits.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/fused_update/fused_update.h"
#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/models/registry.h"
#include "runtime/sharding/settle_rows.h"
#include "runtime/train/trainer.h"
#include "tests/support/small_llama.h"

namespace moonshard::sharding {
namespace {

using testing::HasSubstr;

struct Way {
  std::string engine = "flash_bookkeeping", wrapper = "none", clipping = "flat";
  std::string optimizer = "adamw", world = "auto", model = "llama3-tiny";
  double momentum = 0;
  int64_t grad_accum = 1;
  bool checkpointing = false;
  std::string tied = "no";

  std::string text() const {
    return fmt::format("{} {} {} {} {} {} accum {}", model, engine, wrapper, clipping, optimizer,
                       world, grad_accum);
  }
};

SmallTraining make_streamed_run(const Way& way, bool at_the_end) {
  models::ModelOptions options = small_model(way.model, way.tied);
  if (way.checkpointing) options.checkpointing = "block";
  ShardingOptions sharding;
  sharding.parallel = way.wrapper == "none" || way.wrapper == "ddp" ? way.wrapper : "fsdp";
  if (sharding.parallel == "fsdp") sharding.sharding = way.wrapper;
  sharding.world = way.world;
  sharding.link = "instant";
  if (sharding.parallel == "ddp") sharding.bucket_mb = 0.01;
  options.deferred = sharding.parallel == "fsdp";
  privacy::ClipOptions clip;
  clip.mode = way.engine;
  clip.clipping = way.clipping;
  clip.noise_multiplier = 0.5;
  clip.quantile_noise = 1;
  optim::OptimizerOptions optimizer;
  optimizer.optimizer = way.optimizer;
  optimizer.momentum = way.momentum;
  train::StepOptions step;
  step.grad_accum = way.grad_accum;
  SmallTraining run = small_training(options, sharding, clip, optimizer, step);
  if (at_the_end) run.trainer->observe_gradients([](const models::Model&) {});
  return run;
}

bool has_phase(const train::StepReport& report, const std::string& name) {
  return std::any_of(report.phases.begin(), report.phases.end(),
                     [&](const auto& phase) { return phase.first == name; });
}

void expect_same_digits(const Way& way) {
  const SmallTraining streamed = make_streamed_run(way, false),
                      at_end = make_streamed_run(way, true);
  for (int i = 0; i < 2; ++i) {
    const train::StepReport a = streamed.trainer->step(), b = at_end.trainer->step();
    EXPECT_EQ(a.loss, b.loss) << way.text();
    EXPECT_EQ(a.norms, b.norms) << way.text();
    EXPECT_EQ(a.privacy_steps, i + 1);
    EXPECT_TRUE(has_phase(a, "update") && !has_phase(a, "optimizer")) << way.text();
    EXPECT_TRUE(has_phase(b, "noise") && has_phase(b, "optimizer")) << way.text();
  }
  streamed.trainer->gather();
  at_end.trainer->gather();
  for (const auto& parameter : streamed.model->parameters()) {
    EXPECT_TRUE(at::equal(parameter->value, at_end.model->parameter(parameter->name).value))
        << way.text() << ": " << parameter->name;
    EXPECT_FALSE(parameter->grad.defined()) << parameter->name;
  }
}

TEST(StreamedUpdate, GivesTheDigitsOfAnUpdateAtTheEnd) {
  for (const char* engine :
       {"materialize", "ghost", "flash", "bookkeeping", "flash_bookkeeping", "auto"}) {
    for (const char* wrapper : {"none", "ddp", "zero2", "zero3", "zero2_replicated"}) {
      for (const int64_t grad_accum : {1, 2}) {
        for (const char* world : {"auto", "fake:2"}) {
          if (std::string(wrapper) == "none" && std::string(world) != "auto") continue;
          Way way;
          way.engine = engine, way.wrapper = wrapper, way.world = world;
          way.grad_accum = grad_accum;
          expect_same_digits(way);
        }
      }
    }
  }
}

TEST(StreamedUpdate, AlsoWithOtherClippingOptimizersAndModels) {
  for (const char* wrapper : {"none", "zero3"}) {
    for (const char* engine : {"ghost", "bookkeeping"}) {
      Way way;
      way.wrapper = wrapper, way.engine = engine;
      for (const char* clipping : {"per_layer", "automatic", "adaptive"}) {
        way.clipping = clipping;
        expect_same_digits(way);
      }
      way.clipping = "flat";
      way.optimizer = "sgd";
      expect_same_digits(way);
      way.momentum = 0.9;
      expect_same_digits(way);
      way.tied = "yes";
      expect_same_digits(way);
      way.clipping = "per_layer";
      expect_same_digits(way);
      way.checkpointing = true;
      expect_same_digits(way);
      way.clipping = "flat";
      expect_same_digits(way);
      way.model = "dit-tiny";
      expect_same_digits(way);
    }
  }
}

TEST(StreamedUpdate, HoldsTheGradientsOfOneUnitAtATime) {
  for (const char* world : {"auto", "fake:2"}) {
    for (const char* engine : {"flash_bookkeeping", "ghost"}) {
      Way way;
      way.wrapper = "zero3", way.world = world, way.engine = engine;
      const int64_t streamed = make_streamed_run(way, false).trainer->step().sharding.gradients;
      const SmallTraining whole = make_streamed_run(way, true);
      const int64_t at_end = whole.trainer->step().sharding.gradients;
      const int64_t largest = whole.trainer->parallel().most_completed() * 4;
      EXPECT_LT(streamed, at_end) << way.text();
      // Several ranks: units whose gradients arrived are updated a little later.
      EXPECT_LE(streamed, std::string(world) == "auto" ? largest : 3 * largest) << way.text();
      EXPECT_GT(streamed, 0);
    }
  }
}

TEST(StreamedUpdate, HappensUnitByUnitInsideOfTheSums) {
  // Without wrapper so many parameters as make a 64th of the model.
  for (const auto& [wrapper, units] : {std::pair("none", 8), std::pair("zero3", 1 + 2)}) {
    for (const char* engine : {"flash_bookkeeping", "ghost"}) {
      Way way;
      way.wrapper = wrapper, way.engine = engine;
      const SmallTraining run = make_streamed_run(way, false);
      run.trainer->record_timeline(true);
      const train::StepReport report = run.trainer->step();
      int updates = 0;
      for (const profile::Span& span : report.spans) updates += span.lane == "update" ? 1 : 0;
      EXPECT_GE(updates, units) << way.text();
      EXPECT_TRUE(has_phase(report, "clipped_sum")) << way.text();
    }
  }
}

TEST(StreamedUpdate, AnInterruptWaitsForTheEndOfTheStepOnceAnUpdateHasBegun) {
  {
    const InterruptHold hold;
    request_interrupt();
    EXPECT_NO_THROW(throw_if_interrupted());
  }
  EXPECT_THROW(throw_if_interrupted(), Interrupted);
  clear_interrupt();
}

TEST(StreamedUpdate, AStepThatFailsBetweenItsUpdatesIsTheLast) {
  Way way;
  way.model = "linear-tiny";
  way.optimizer = "sgd";
  const SmallTraining run = make_streamed_run(way, false);
  run.trainer->step();
  // One number seen as many cannot be written to: the update of this one fails.
  models::Parameter& bias = run.model->parameter("layers.0.bias");
  const at::Tensor good = bias.value;
  bias.value = at::zeros({1}).expand(good.sizes());
  EXPECT_ANY_THROW(run.trainer->step());
  bias.value = good;
  try {
    run.trainer->step();
    FAIL() << "expected an error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("failed after it had begun to update"));
    EXPECT_THAT(error.what(), HasSubstr("resume from a good checkpoint"));
  }
}

TEST(StreamedUpdate, AStepThatFailsBeforeItsFirstUpdateChangesNothing) {
  Way way;
  const SmallTraining run = make_streamed_run(way, false);
  run.trainer->step();
  std::vector<at::Tensor> before;
  for (const auto& parameter : run.model->parameters()) before.push_back(parameter->value.clone());
  request_interrupt();
  EXPECT_THROW(run.trainer->step(), Interrupted);
  clear_interrupt();
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(at::equal(before[i], run.model->parameters()[i]->value));
  EXPECT_EQ(run.trainer->step().step, 2);
}

TEST(SettleRows, AddsWeightedRowsAndLeavesDroppedOnesOut) {
  models::Parameter parameter;
  parameter.value = at::zeros({2, 3});
  parameter.grad = at::ones({2, 3});
  parameter.rows = at::arange(18).to(at::kHalf).view({3, 2, 3}).clone();
  parameter.rows[1].fill_(INFINITY);
  parameter.row_factors = at::tensor({0.5f, 0.0f, 0.25f});
  const at::Tensor want =
      1 + 0.5 * at::arange(6).view({2, 3}) + 0.25 * at::arange(12, 18).view({2, 3});
  settle_rows(parameter);
  EXPECT_TRUE(at::allclose(parameter.grad, want));
  EXPECT_EQ(parameter.grad.scalar_type(), at::kFloat);
  EXPECT_FALSE(parameter.rows.defined() || parameter.row_factors.defined());
}

}  // namespace
}  // namespace moonshard::sharding
