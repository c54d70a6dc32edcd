// cpu_offload: sums and updates beside the step, noise before gradients go to the host. On the CPU
// host and device are the same memory, and the threads and their order are those of a GPU.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/models/registry.h"
#include "runtime/sharding/worker.h"
#include "runtime/train/trainer.h"
#include "tests/support/shared_secret.h"
#include "tests/support/small_llama.h"

namespace moonshard::sharding {
namespace {

using testing::HasSubstr;

struct OffloadCase {
  std::string engine = "bookkeeping", sharding = "zero3", optimizer = "adamw", world = "auto";
  std::string compute = "float32";
  double momentum = 0;
  int64_t grad_accum = 1;
  bool no_sync = false, secret = false;

  std::string text() const {
    return fmt::format("{} {} {} {} {} momentum {} accum {} no_sync {} secret {}", engine, sharding,
                       optimizer, world, compute, momentum, grad_accum, no_sync, secret);
  }
};

SmallTraining make_offload_run(const OffloadCase& way, bool offload) {
  models::ModelOptions options = small_llama(true);
  options.num_layers = 3;
  options.param_dtype = way.compute;
  ShardingOptions sharding;
  sharding.parallel = "fsdp";
  sharding.sharding = way.sharding;
  sharding.world = way.world;
  sharding.link = "instant";
  sharding.no_sync = way.no_sync;
  sharding.cpu_offload = offload;
  privacy::ClipOptions clip;
  clip.mode = way.engine;
  clip.noise_multiplier = 0.5;
  optim::OptimizerOptions optimizer;
  optimizer.optimizer = way.optimizer;
  optimizer.momentum = way.momentum;
  train::StepOptions step;
  step.grad_accum = way.grad_accum;
  return small_training(options, sharding, clip, optimizer, step,
                        way.secret ? std::make_shared<SharedSecret>() : nullptr);
}

void expect_the_same_training(const OffloadCase& way) {
  const SmallTraining with = make_offload_run(way, true), without = make_offload_run(way, false);
  for (int i = 0; i < 3; ++i) {
    const train::StepReport a = with.trainer->step(), b = without.trainer->step();
    EXPECT_EQ(a.loss, b.loss) << way.text();
    EXPECT_EQ(a.norms, b.norms) << way.text();
    EXPECT_EQ(with.trainer->parallel().memory().gradients_now, 0) << way.text();
  }
  with.trainer->gather();
  without.trainer->gather();
  for (const auto& parameter : with.model->parameters())
    EXPECT_TRUE(at::equal(parameter->value, without.model->parameter(parameter->name).value))
        << way.text() << ": " << parameter->name;
}

TEST(Offload, TrainsToTheSameDigits) {
  for (const char* sharding : {"zero3", "zero2", "zero2_replicated"}) {
    for (const char* world : {"auto", "fake:2"}) {
      for (const bool secret : {false, true}) {
        for (const int64_t grad_accum : {1, 3}) {
          for (const char* engine : {"ghost", "flash_bookkeeping"}) {
            OffloadCase way;
            way.sharding = sharding, way.world = world, way.secret = secret;
            way.grad_accum = grad_accum, way.engine = engine;
            expect_the_same_training(way);
          }
        }
      }
    }
  }
}

TEST(Offload, AlsoWithOtherOptimizersHalvesAndDelayedReductions) {
  for (const char* compute : {"float32", "bfloat16"}) {
    for (const char* world : {"auto", "fake:2"}) {
      for (const char* engine : {"bookkeeping", "none"}) {
        OffloadCase way;
        way.compute = compute, way.world = world, way.engine = engine;
        way.secret = way.engine != "none";
        for (const char* optimizer : {"adamw", "adam", "sgd"}) {
          way.optimizer = optimizer;
          expect_the_same_training(way);
        }
        way.momentum = 0.9;
        expect_the_same_training(way);
        way.grad_accum = 2;
        expect_the_same_training(way);
        way.no_sync = true;
        expect_the_same_training(way);
      }
    }
  }
}

TEST(Offload, UpdatesUnitByUnitBesideTheStep) {
  OffloadCase way;
  const SmallTraining run = make_offload_run(way, true);
  EXPECT_TRUE(run.trainer->parallel().works_beside());
  EXPECT_FALSE(make_offload_run(way, false).trainer->parallel().works_beside());
  run.trainer->record_timeline(true);
  const train::StepReport report = run.trainer->step();
  const auto updates = [](const train::StepReport& of) {
    return std::count_if(of.spans.begin(), of.spans.end(),
                         [](const profile::Span& span) { return span.lane == "update"; });
  };
  EXPECT_EQ(updates(report), 1 + 3) << "the root and three blocks";
  EXPECT_TRUE(std::any_of(report.phases.begin(), report.phases.end(),
                          [](const auto& phase) { return phase.first == "update"; }));
  way.engine = "none";
  const SmallTraining plain = make_offload_run(way, true);
  plain.trainer->record_timeline(true);
  EXPECT_EQ(updates(plain.trainer->step()), 1 + 3);
}

// One number seen as many cannot be written to: the update of this part fails, beside the step.
TEST(Offload, AStepWhoseUpdateFailsBesideItIsTheLast) {
  OffloadCase way;
  way.optimizer = "sgd";
  const SmallTraining run = make_offload_run(way, true);
  run.trainer->step();
  models::Parameter& part = *run.trainer->parallel().updated().back();
  const at::Tensor good = part.value;
  part.value = at::zeros({1}).expand(good.sizes());
  EXPECT_ANY_THROW(run.trainer->step());
  part.value = good;
  EXPECT_EQ(run.trainer->parallel().memory().gradients_now, 0);
  EXPECT_EQ(run.trainer->half_done(), "step");
  try {
    run.trainer->step();
    FAIL() << "expected an error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("failed after it had begun to update"));
  }
}

// Plain training looks at all losses before the first update beside the last backward pass.
TEST(Offload, APlainStepWithALossThatIsNotFiniteChangesNothing) {
  models::ModelOptions options;
  options.model = "linear-tiny";
  options.device = "cpu";
  const auto model = std::shared_ptr<models::Model>(models::make_model(options));
  Batch batch = data::SyntheticData(model->options(), 4, 1).next();
  const at::Tensor good = batch.targets.clone();
  batch.targets[3].fill_(std::numeric_limits<double>::infinity());
  std::vector<at::Tensor> before;
  for (const auto& parameter : model->parameters()) before.push_back(parameter->value.clone());
  ShardingOptions sharding;
  sharding.parallel = "fsdp";
  sharding.cpu_offload = true;
  privacy::ClipOptions clip;
  clip.mode = "none";
  train::StepOptions step;
  step.grad_accum = 2;
  train::Trainer trainer(
      {.model = model, .clip = clip, .step = step, .sharding = sharding, .privacy = {}});
  try {
    trainer.step(batch);
    FAIL() << "expected an error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected finite losses, got inf in sample 4 of 4"));
  }
  EXPECT_EQ(trainer.half_done(), "");
  trainer.gather();
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(at::equal(before[i], model->parameters()[i]->value));
  batch.targets.copy_(good);
  EXPECT_EQ(trainer.step(batch).step, 1);
}

TEST(Worker, RunsJobsInOrderOnItsThread) {
  Worker worker;
  worker.wait();
  std::vector<int> done;
  std::thread::id thread;
  for (int i = 0; i < 100; ++i) {
    worker.add([&, i] {
      done.push_back(i);
      thread = std::this_thread::get_id();
    });
  }
  worker.wait();
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], i);
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_EQ(worker.added(), 100);
  EXPECT_EQ(worker.ended(), 100);
}

TEST(Worker, WaitsUntilSoManyAreLeft) {
  Worker worker;
  std::atomic<int> allowed{0}, begun{0};
  for (int i = 0; i < 4; ++i) {
    worker.add([&] {
      ++begun;
      while (allowed < begun) std::this_thread::yield();
    });
  }
  allowed = 2;
  worker.wait(2);
  EXPECT_EQ(worker.ended(), 2);
  allowed = 4;
  worker.wait();
  EXPECT_EQ(begun, 4);
}

TEST(Worker, AnErrorStopsItUntilItIsForgotten) {
  Worker worker;
  int after = 0;
  worker.add([] { throw std::runtime_error("first"); });
  try {
    worker.wait();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_THROW(worker.add([&] { ++after; }), std::runtime_error);
  worker.drop();
  worker.add([&] { after += 10; });
  worker.wait();
  EXPECT_EQ(after, 10);
}

TEST(Worker, ForgetsJobsThatHaveNotBegun) {
  std::atomic<bool> go{false};
  std::atomic<int> done{0};
  {
    Worker worker;
    worker.add([&] {
      while (!go) std::this_thread::yield();
      ++done;
    });
    for (int i = 0; i < 5; ++i) worker.add([&] { ++done; });
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      go = true;
    });
    worker.drop();
    later.join();
    EXPECT_LE(done, 1);
    EXPECT_EQ(worker.ended(), worker.added());
    worker.add([&] { done = 7; });
    worker.wait();
  }
  EXPECT_EQ(done, 7);
}

}  // namespace
}  // namespace moonshard::sharding
