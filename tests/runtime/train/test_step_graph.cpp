// Option compile without a GPU: what it says, which steps would be replayed, and, with imitated
// graphs, that a step whose gradients are kept for its end gives the digits of one that updates as
// it goes.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/experiment/experiment.h"
#include "runtime/models/registry.h"
#include "runtime/train/step_graph.h"
#include "runtime/train/step_update.h"
#include "tests/support/small_llama.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::train {
namespace {

using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

struct Way {
  std::string engine = "flash_bookkeeping", wrapper = "none", clipping = "flat";
  std::string model = "llama3-tiny", world = "auto", tied = "no";
  std::string compile = "yes";
  int64_t grad_accum = 1, head_chunk = 0;
  bool checkpointing = false;

  std::string text() const {
    return fmt::format("{} {} {} {} {} accum {}", model, engine, wrapper, clipping, world,
                       grad_accum);
  }
};

using Training = SmallTraining;

Training make_run(const Way& way, bool compile) {
  models::ModelOptions options = small_model(way.model, way.tied);
  if (way.checkpointing) options.checkpointing = "block";
  options.head_chunk = way.head_chunk;
  sharding::ShardingOptions sharding;
  sharding.parallel = way.wrapper == "none" || way.wrapper == "ddp" ? way.wrapper : "fsdp";
  if (sharding.parallel == "fsdp") sharding.sharding = way.wrapper;
  sharding.world = way.world;
  sharding.link = "instant";
  options.deferred = sharding.parallel == "fsdp";
  privacy::ClipOptions clip;
  clip.mode = way.engine;
  clip.clipping = way.clipping;
  clip.noise_multiplier = 0.5;
  clip.quantile_noise = 1;
  optim::OptimizerOptions optimizer;
  optimizer.optimizer = "adamw";
  StepOptions step;
  step.grad_accum = way.grad_accum;
  step.compile = compile ? way.compile : "no";
  return small_training(options, sharding, clip, optimizer, step);
}

bool has_phase(const StepReport& report, const std::string& name) {
  return std::any_of(report.phases.begin(), report.phases.end(),
                     [&](const auto& phase) { return phase.first == name; });
}

bool is_graph(const StepReport& report) {
  return has_phase(report, "graph");
}

std::string traffic_of(const StepReport& report) {
  std::string text;
  for (const comm::Traffic& sent : report.traffic)
    text += fmt::format("{} {} of {} bytes; ", sent.count, sent.operation, sent.bytes);
  return text;
}

void expect_same_weights(const Training& a, const Training& b, const std::string& text) {
  a.trainer->gather();
  b.trainer->gather();
  for (const auto& parameter : a.model->parameters()) {
    EXPECT_TRUE(at::equal(parameter->value, b.model->parameter(parameter->name).value))
        << text << ": " << parameter->name;
    EXPECT_FALSE(parameter->grad.defined()) << text << ": " << parameter->name;
  }
}

// `first` graph of six steps, 0 for none.
void expect_same_digits(const Way& way, int first) {
  const Training plain = make_run(way, false), compiled = make_run(way, true);
  for (int i = 1; i <= 6; ++i) {
    const StepReport a = plain.trainer->step(), b = compiled.trainer->step();
    EXPECT_EQ(a.loss, b.loss) << way.text();
    EXPECT_EQ(a.norms, b.norms) << way.text();
    EXPECT_EQ(a.factors, b.factors) << way.text();
    EXPECT_EQ(a.kept_bytes > 0, b.kept_bytes > 0) << way.text();
    EXPECT_EQ(a.privacy_steps, b.privacy_steps) << way.text();
    EXPECT_EQ(is_graph(b), first > 0 && i >= first) << way.text() << ", step " << i;
    EXPECT_EQ(traffic_of(a), traffic_of(b)) << way.text() << ", step " << i;
    EXPECT_EQ(has_phase(b, "forward"), !is_graph(b)) << way.text();
  }
  expect_same_weights(plain, compiled, way.text());
}

TEST(StepGraph, IsAnOptionOfExperiments) {
  ASSERT_NE(experiment::experiment_schema().find("compile"), nullptr);
  EXPECT_EQ(experiment::ExperimentOptions{}.compile, "auto");
  EXPECT_EQ(
      experiment::resolve_experiment_table(Json{{"compile", true}, {"device", "cpu"}})["warmup"],
      1);
}

TEST(StepGraph, OnTheCpuSaysOnceThatItDoesNothing) {
  CaptureStderr();
  expect_same_digits({}, 0);
  const std::string said = GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("compile: steps run one kernel at a time: the model is on the CPU"));
  EXPECT_EQ(said.find("compile:"), said.rfind("compile:")) << said;
}

TEST(StepGraph, GivesTheDigitsOfOtherSteps) {
  const ImitatedGraphs imitated;
  for (const char* engine : {"none", "materialize", "ghost", "flash", "bookkeeping", "auto"}) {
    for (const char* wrapper : {"none", "ddp", "zero2", "zero3"}) {
      Way way;
      way.engine = engine, way.wrapper = wrapper;
      expect_same_digits(way, StepGraph::kEagerSteps + 1);
    }
  }
}

TEST(StepGraph, AlsoWithOtherClippingAndModels) {
  const ImitatedGraphs imitated;
  for (const char* wrapper : {"none", "zero3"}) {
    for (const char* engine : {"none", "ghost", "bookkeeping"}) {
      Way way;
      way.wrapper = wrapper, way.engine = engine;
      way.clipping = "automatic";
      expect_same_digits(way, 3);
      way.clipping = "per_layer";
      way.tied = "yes";
      expect_same_digits(way, 3);
      way.checkpointing = true;
      expect_same_digits(way, 3);
      way.clipping = "flat";
      way.model = "dit-tiny";
      expect_same_digits(way, 3);
      way.model = "linear-tiny";
      way.checkpointing = false;
      expect_same_digits(way, 3);
    }
  }
}

TEST(StepGraph, AlsoWithAHeadInChunks) {
  const ImitatedGraphs imitated;
  for (const char* wrapper : {"none", "zero3"}) {
    for (const char* engine : {"none", "ghost", "bookkeeping", "auto"}) {
      Way way;
      way.wrapper = wrapper, way.engine = engine, way.head_chunk = 4;
      expect_same_digits(way, 3);
      way.tied = "yes";
      expect_same_digits(way, 3);
    }
  }
}

TEST(StepGraph, HasTheCollectivesOfSeveralRanks) {
  const ImitatedGraphs imitated;
  for (const char* engine : {"none", "ghost", "bookkeeping", "auto"}) {
    for (const char* wrapper : {"ddp", "zero2", "zero3"}) {
      Way way;
      way.engine = engine, way.wrapper = wrapper, way.world = "fake:4";
      expect_same_digits(way, 3);
      way.grad_accum = 2;
      way.checkpointing = true;
      expect_same_digits(way, 3);
    }
  }
}

TEST(StepGraph, HoldsAllMicroBatchesOfAStep) {
  const ImitatedGraphs imitated;
  for (const char* engine : {"none", "ghost", "auto"}) {
    for (const char* wrapper : {"none", "zero3"}) {
      Way way;
      way.engine = engine, way.wrapper = wrapper, way.grad_accum = 3;
      expect_same_digits(way, 3);
    }
  }
}

// On the CPU the host takes all of a step.
TEST(StepGraph, TurnsOnByItselfWhereTheHostTakesMostOfAStepAndSaysSo) {
  const ImitatedGraphs imitated;
  Way way;
  way.compile = "auto";
  CaptureStderr();
  expect_same_digits(way, StepGraph::kDecidingSteps + 2);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("launching kernels takes 100 % of a step"));
}

TEST(StepGraph, ByItselfIsDecidedByTwoOfThreeStepsBehindTheFirst) {
  const ImitatedGraphs imitated;
  const auto is_on_after = [](std::vector<double> shares, bool has_room,
                              const std::string& obstacle = "") {
    StepGraph graph(c10::kCPU, obstacle, /*by_itself=*/true);
    for (const double share : shares) {
      EXPECT_TRUE(graph.awaits_decision());
      graph.observe({share, has_room});
    }
    EXPECT_FALSE(graph.awaits_decision());
    graph.observe({1.0, true});
    graph.observe({0.1, true});
    return graph.is_possible();
  };
  CaptureStderr();
  EXPECT_FALSE(is_on_after({1.0, 0.39, 0.39}, true)) << "the first does not count";
  EXPECT_FALSE(is_on_after({1.0, 1.0, 0.39, 0.3}, true)) << "a stall of one step";
  EXPECT_FALSE(is_on_after({1.0, 0.3, 1.0, 0.39}, true));
  EXPECT_FALSE(is_on_after({1.0, 1.0, 1.0}, false));
  EXPECT_FALSE(is_on_after({1.0, 1.0, 1.0}, true, "an obstacle"));
  EXPECT_EQ(GetCapturedStderr(), "") << "nobody asked";
  CaptureStderr();
  EXPECT_TRUE(is_on_after({0.1, 0.9, 0.7}, true));
  EXPECT_TRUE(is_on_after({0.1, 0.6, 0.7, 0.9}, true)) << "a step that the host hurried through";
  EXPECT_TRUE(is_on_after({0.1, 0.9, 0.6, 0.7}, true));
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("70 % of a step"));
}

// Between the two shares the clock decides: the shortest of two replays, beside the shortest eager
// step. The replay of the captured step does not count.
TEST(StepGraph, IsTriedWhereTheHostTakesTwoFifthsOfAStep) {
  const ImitatedGraphs imitated;
  constexpr int64_t kTokens = 12;
  const auto is_on_after = [](double share, std::vector<double> replays_ms) {
    StepGraph graph(c10::kCPU, "", /*by_itself=*/true);
    for (const double ms : {300.0, 11.0, 10.0}) graph.observe({share, true, ms, kTokens});
    EXPECT_TRUE(graph.is_possible()) << "it is tried";
    for (const double ms : replays_ms) {
      EXPECT_TRUE(graph.awaits_decision());
      graph.observe({0, true, ms, kTokens, /*replayed=*/true});
      graph.observe({0, true, 1, 7});  // of another shape: says nothing
    }
    EXPECT_FALSE(graph.awaits_decision());
    return graph.is_possible();
  };
  CaptureStderr();
  EXPECT_FALSE(is_on_after(0.41, {9, 10.0, 10.1}));
  EXPECT_FALSE(is_on_after(0.69, {9, 12, 12}));
  EXPECT_EQ(GetCapturedStderr(), "") << "nobody asked";
  CaptureStderr();
  EXPECT_TRUE(is_on_after(0.41, {90, 12, 9.2}));
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("9.2 ms as a CUDA graph, 10.0 without"));
  CaptureStderr();
  EXPECT_TRUE(is_on_after(0.41, {9, 9.95, 9.95})) << "and later eager steps may wait for the host";
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("9.9 ms as a CUDA graph"));
  StepGraph full(c10::kCPU, "", /*by_itself=*/true);
  for (int i = 0; i < 3; ++i) full.observe({0.6, /*has_room=*/false, 10.0});
  EXPECT_FALSE(full.is_possible() || full.awaits_decision());
}

// Ranks ask each other at every step of a trial: it must not last.
TEST(StepGraph, IsNotTriedForEver) {
  const ImitatedGraphs imitated;
  const auto begin_trial = [](StepGraph& graph) {
    for (int i = 0; i < 3; ++i) graph.observe({0.6, true, 10.0, 12});
    EXPECT_TRUE(graph.awaits_decision());
  };
  CaptureStderr();
  // Somebody looks into every step, or shapes keep changing.
  StepGraph watched(c10::kCPU, "", /*by_itself=*/true);
  begin_trial(watched);
  for (int64_t i = 1; i < StepGraph::kMostStepsOfATrial; ++i)
    watched.observe({0.6, true, 10.0, 12});
  EXPECT_TRUE(watched.awaits_decision());
  watched.observe({0.6, true, 10.0, 12});
  EXPECT_FALSE(watched.awaits_decision() || watched.is_possible());
  // Small batches were timed without, a large one with a graph.
  StepGraph other_size(c10::kCPU, "", /*by_itself=*/true);
  begin_trial(other_size);
  for (int i = 0; i < 2; ++i) other_size.observe({0, true, 5.0, 20, /*replayed=*/true});
  EXPECT_FALSE(other_size.awaits_decision() || other_size.is_possible());
  // Eager steps of the last size alone count.
  StepGraph drawn(c10::kCPU, "", /*by_itself=*/true);
  for (const int64_t tokens : {12, 6, 12})
    drawn.observe({0.6, true, tokens == 6 ? 1.0 : 10.0, tokens});
  for (int i = 0; i < 3; ++i) drawn.observe({0, true, 5.0, 12, /*replayed=*/true});
  EXPECT_TRUE(drawn.is_possible());
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("5.0 ms as a CUDA graph, 10.0 without"));
}

TEST(StepGraph, SaysWhatStandsInItsWay) {
  const ImitatedGraphs imitated;
  const auto expect_obstacle = [](const Way& way, const std::string& words) {
    CaptureStderr();
    expect_same_digits(way, 0);
    const std::string said = GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr(words));
    EXPECT_EQ(said.find("compile:"), said.rfind("compile:")) << said;
  };
  Way way;
  way.clipping = "adaptive";
  expect_obstacle(way, "adaptive");
  way = {};
  way.wrapper = "zero2_replicated";
  expect_obstacle(way, "zero2_replicated");
}

TEST(StepGraph, GoesOnWithoutWhenACaptureFails) {
  for (const char* wrapper : {"none", "ddp", "zero3"}) {
    for (const char* engine : {"none", "ghost", "bookkeeping"}) {
      const ImitatedGraphs fails(/*fails=*/true);
      Way way;
      way.wrapper = wrapper, way.engine = engine;
      CaptureStderr();
      const Training plain = make_run(way, false), compiled = make_run(way, true);
      for (int i = 1; i <= 5; ++i) {
        const StepReport a = plain.trainer->step(), b = compiled.trainer->step();
        EXPECT_EQ(a.loss, b.loss) << way.text();
        EXPECT_EQ(a.norms, b.norms) << way.text();
        EXPECT_EQ(is_graph(b), i == 3) << "the time of the attempt";
        EXPECT_TRUE(has_phase(b, "forward"));
      }
      expect_same_weights(plain, compiled, way.text());
      const std::string said = GetCapturedStderr();
      EXPECT_THAT(said, HasSubstr("could not be captured: as the test wanted"));
      EXPECT_EQ(said.find("compile:"), said.rfind("compile:")) << said;
    }
  }
}

Batch batch_of(const Training& run, int64_t samples, int64_t tokens) {
  return data::SyntheticData(run.model->options(), samples, tokens).next();
}

TEST(StepGraph, ABatchOfAnotherShapeRunsWithoutAndTheGraphStays) {
  const ImitatedGraphs imitated;
  CaptureStderr();
  const Training run = make_run({}, true);
  const Batch usual = batch_of(run, 2, 6), other = batch_of(run, 3, 5);
  std::string graphs;
  for (const Batch* batch : {&usual, &usual, &usual, &usual, &other, &usual, &other, &other, &usual,
                             &other, &other, &other, &other, &usual})
    graphs += is_graph(run.trainer->step(*batch)) ? 'g' : '.';
  EXPECT_EQ(graphs, "..gg.g..g..gg.");
  const std::string said = GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("another shape"));
  EXPECT_EQ(said.find("compile:"), said.rfind("compile:")) << said;
}

// Sizes of drawn batches: a graph for each would cost more than all steps.
TEST(StepGraph, IsGivenUpWhereShapesKeepChanging) {
  const ImitatedGraphs imitated;
  const Training run = make_run({}, true);
  CaptureStderr();
  std::vector<int64_t> graphs;  // by size
  for (int64_t size = 2; size <= 6; ++size) {
    const Batch batch = data::SyntheticData(run.model->options(), size, 6).next();
    int64_t made = 0;
    for (int i = 0; i < 4; ++i) made += is_graph(run.trainer->step(batch)) ? 1 : 0;
    graphs.push_back(made);
  }
  EXPECT_THAT(graphs, testing::ElementsAre(2, 2, 2, 0, 0));
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("shapes have changed so often that"));
}

TEST(StepGraph, WhoLooksIntoAStepGetsOneWithoutAndTheGraphStays) {
  const ImitatedGraphs imitated;
  const Training run = make_run({}, true);
  for (int i = 0; i < 3; ++i) run.trainer->step();
  EXPECT_TRUE(is_graph(run.trainer->step()));
  run.trainer->observe_gradients([](const models::Model&) {});
  EXPECT_FALSE(is_graph(run.trainer->step()));
  run.trainer->observe_gradients({});
  EXPECT_TRUE(is_graph(run.trainer->step()));
  run.trainer->record_layers(true);
  const StepReport layers = run.trainer->step();
  EXPECT_FALSE(is_graph(layers) || layers.layers.empty());
  run.trainer->record_layers(false);
  run.trainer->record_timeline(true);
  EXPECT_FALSE(is_graph(run.trainer->step()));
  run.trainer->record_timeline(false);
  run.trainer->record_details(true);
  EXPECT_FALSE(is_graph(run.trainer->step()));
  run.trainer->record_details(false);
  EXPECT_TRUE(is_graph(run.trainer->step()));
}

TEST(StepGraph, FrozenOrMovedParametersAndResumesMakeAnother) {
  const ImitatedGraphs imitated;
  const TemporaryFolder folder;
  const Training run = make_run({}, true);
  std::string graphs;
  const auto step = [&](int count) {
    for (int i = 0; i < count; ++i) graphs += is_graph(run.trainer->step()) ? 'g' : '.';
    graphs += ' ';
  };
  step(4);
  run.model->freeze("model.norm.weight");
  step(4);
  models::Parameter& moved = *run.model->parameters().back();
  const at::Tensor before = moved.value;
  moved.value = before.clone();
  step(4);
  checkpoint::resume(*run.trainer, checkpoint::save(*run.trainer, folder.path()));
  step(4);
  EXPECT_EQ(graphs, "..gg ..gg ..gg ..gg ");
}

TEST(StepGraph, GatheredParametersMayBeLookedAtAndChanged) {
  const ImitatedGraphs imitated;
  for (const char* wrapper : {"zero2", "zero3"}) {
    Way way;
    way.wrapper = wrapper;
    const Training plain = make_run(way, false), compiled = make_run(way, true);
    for (int i = 0; i < 5; ++i) {
      for (const Training* run : {&plain, &compiled}) {
        run->trainer->step();
        run->trainer->gather();
        if (i == 3) run->model->parameters().front()->value.mul_(0.5);
      }
    }
    EXPECT_EQ(plain.trainer->step().loss, compiled.trainer->step().loss);
    expect_same_weights(plain, compiled, way.text());
  }
}

// Frozen rows that stay whole are gathered once, and by no graph: where a script may have changed
// them, as at the start, the next step gathers them again.
TEST(StepGraph, FrozenRowsThatMayHaveChangedAreGatheredByAStepWithout) {
  const ImitatedGraphs imitated;
  models::ModelOptions options = small_model("llama3-tiny", "no");
  options.lora_rank = 2;
  options.deferred = true;
  sharding::ShardingOptions sharding;
  sharding.parallel = "fsdp";
  sharding.world = "fake:2";
  sharding.link = "instant";
  sharding.keep_frozen = true;
  StepOptions step;
  step.compile = "yes";
  const Training run = small_training(options, sharding, {}, {}, step);
  std::string graphs;
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) graphs += is_graph(run.trainer->step()) ? 'g' : '.';
    graphs += ' ';
  };
  steps(5);
  run.trainer->gather();
  steps(2);
  EXPECT_EQ(graphs, "...gg .g ");
}

TEST(StepGraph, NoUpdateHappensWhileAStepIsCaptured) {
  models::ModelOptions options;
  options.model = "linear-tiny";
  options.device = "cpu";
  const auto model = models::make_model(options);
  const auto world = comm::make_world("auto", "instant");
  const auto parallel = sharding::make_parallel(*model, {}, *world);
  optim::Optimizer optimizer{optim::OptimizerOptions{}};
  bool half_done = false;
  StepUpdate update(*parallel, optimizer, {}, at::kFloat, 0.1, half_done);
  update.close(true);
  EXPECT_THROW(update.apply_rest(), InternalError);
}

}  // namespace
}  // namespace moonshard::train
