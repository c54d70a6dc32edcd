// Option compile on a GPU: steps that are replayed as CUDA graphs do what other steps do. Skipped
// with a reason without a GPU.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/experiment/experiment.h"
#include "runtime/models/families/linear/linear.h"
#include "runtime/models/registry.h"
#include "runtime/privacy/plan_trial.h"
#include "runtime/profile/memory.h"
#include "runtime/train/step_graph.h"
#include "tests/kernels/on_gpu.h"

namespace moonshard::train {
namespace {

using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

class GraphGpu : public OnGpu {};

struct Way {
  std::string model = "llama3-tiny", engine = "auto", wrapper = "none", clipping = "flat";
  std::string dtype = "float32", param_dtype = "bfloat16", tied = "no";
  std::string optimizer = "adamw", world = "auto";
  double lr = 0.01, noise = 0.5;
  int64_t grad_accum = 1;
  bool deterministic = true, checkpointing = false;

  std::string text() const {
    return fmt::format("{} {} {} {} {} {}/{} tied {} checkpointing {} deterministic {}", model,
                       engine, wrapper, world, clipping, dtype, param_dtype, tied, checkpointing,
                       deterministic);
  }
};

struct Training {
  std::shared_ptr<models::Model> model;
  std::unique_ptr<Trainer> trainer;
};

Training with_model(std::shared_ptr<models::Model> model, const Way& way, bool compile) {
  sharding::ShardingOptions sharding;
  sharding.parallel = way.wrapper == "none" || way.wrapper == "ddp" ? way.wrapper : "fsdp";
  if (sharding.parallel == "fsdp") sharding.sharding = way.wrapper;
  sharding.world = way.world;
  if (way.world == "fake:8") sharding.replicate = 2;
  privacy::ClipOptions clip;
  clip.mode = way.engine;
  clip.clipping = way.clipping;
  clip.noise_multiplier = way.noise;
  optim::OptimizerOptions optimizer;
  optimizer.optimizer = way.optimizer;
  optimizer.lr = way.lr;
  StepOptions step;
  step.compile = compile ? "yes" : "no";
  step.grad_accum = way.grad_accum;
  step.deterministic = way.deterministic;
  Training run;
  run.model = std::move(model);
  run.trainer = std::make_unique<Trainer>(
      TrainerParts{run.model, clip, optimizer,
                   std::make_unique<data::SyntheticData>(run.model->options(), 4, 16), step,
                   sharding, nullptr, privacy::reproducible_noise()});
  return run;
}

Training make_run(const Way& way, bool compile) {
  models::ModelOptions options;
  options.model = way.model;
  options.device = "cuda";
  options.dtype = way.dtype;
  options.param_dtype = way.param_dtype;
  if (way.model == "llama3-tiny") {
    options.task = "lm";
    options.tie_embeddings = way.tied;
  }
  if (way.checkpointing) options.checkpointing = "block";
  options.deferred = way.wrapper.starts_with("zero");
  return with_model(models::make_model(options), way, compile);
}

bool has_phase(const StepReport& report, const std::string& name) {
  return std::any_of(report.phases.begin(), report.phases.end(),
                     [&](const auto& phase) { return phase.first == name; });
}

double worst(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::max(std::abs(b[i]), 1e-6));
  return largest;
}

// Twelve steps, ten of them replays. In deterministic mode to the last bit, else within the
// rounding of sums whose order is not fixed.
void expect_same(const Way& way) {
  SCOPED_TRACE(way.text());
  const double allowed = way.deterministic ? 0 : 1e-5;
  const Training plain = make_run(way, false), compiled = make_run(way, true);
  for (int i = 1; i <= 12; ++i) {
    const StepReport a = plain.trainer->step(), b = compiled.trainer->step();
    ASSERT_EQ(has_phase(b, "graph"), i > StepGraph::kEagerSteps) << "step " << i;
    ASSERT_EQ(has_phase(b, "forward"), i <= StepGraph::kEagerSteps) << "step " << i;
    ASSERT_LE(worst({b.loss}, {a.loss}), allowed)
        << "step " << i << ": " << b.loss << " " << a.loss;
    ASSERT_LE(worst(b.norms, a.norms), allowed) << "step " << i;
    ASSERT_LE(worst(b.factors, a.factors), allowed) << "step " << i;
    EXPECT_EQ(b.privacy_steps, a.privacy_steps);
    EXPECT_EQ(b.kept_bytes > 0, a.kept_bytes > 0);
    EXPECT_GT(b.memory.max_allocated_bytes, 0);
    ASSERT_EQ(b.traffic.size(), a.traffic.size()) << "step " << i;
    for (size_t j = 0; j < a.traffic.size(); ++j)
      EXPECT_EQ(b.traffic[j].bytes, a.traffic[j].bytes) << "step " << i;
  }
  plain.trainer->gather();
  compiled.trainer->gather();
  for (const auto& parameter : plain.model->parameters()) {
    const at::Tensor other = compiled.model->parameter(parameter->name).value;
    const bool same = way.deterministic ? at::equal(parameter->value, other)
                                        : at::allclose(parameter->value.to(at::kFloat),
                                                       other.to(at::kFloat), 1e-3, 1e-4);
    EXPECT_TRUE(same) << parameter->name << " differs by "
                      << (parameter->value - other).abs().max().item<double>();
  }
}

TEST_F(GraphGpu, EveryEngineAndWrapperGivesTheDigitsOfOtherSteps) {
  for (const char* model : {"llama3-tiny", "dit-tiny"}) {
    for (const char* engine : {"none", "auto", "bookkeeping", "ghost", "flash", "materialize"}) {
      for (const char* wrapper : {"none", "zero3"}) {
        Way way;
        way.model = model, way.engine = engine, way.wrapper = wrapper;
        expect_same(way);
      }
    }
  }
}

TEST_F(GraphGpu, AlsoInOtherFormatsAndKindsOfClipping) {
  for (const char* engine : {"none", "auto", "ghost"}) {
    Way way;
    way.engine = engine;
    way.param_dtype = "float32";
    expect_same(way);
    way.dtype = way.param_dtype = "bfloat16";
    expect_same(way);
    way.wrapper = "ddp";
    expect_same(way);
    way.wrapper = "zero2";
    way.dtype = "float32";
    way.clipping = "per_layer";
    expect_same(way);
    way.clipping = "automatic";
    way.tied = "yes";
    expect_same(way);
    way.checkpointing = true;
    way.wrapper = "none";
    expect_same(way);
  }
}

TEST_F(GraphGpu, HasTheCollectivesOfSeveralRanks) {
  for (const char* wrapper : {"ddp", "zero2", "zero3"}) {
    for (const char* engine : {"none", "auto", "bookkeeping", "ghost"}) {
      Way way;
      way.engine = engine, way.wrapper = wrapper, way.world = "fake:4";
      expect_same(way);
      way.grad_accum = 2;
      way.checkpointing = true;
      expect_same(way);
    }
  }
  Way copies;  // two of every part
  copies.wrapper = "zero3", copies.world = "fake:8";
  expect_same(copies);
  copies.model = "dit-tiny";
  expect_same(copies);
}

TEST_F(GraphGpu, AndWithKernelsThatAreChosenByTime) {
  for (const char* model : {"llama3-tiny", "dit-tiny"}) {
    for (const char* engine : {"none", "bookkeeping", "ghost"}) {
      Way way;
      way.model = model, way.engine = engine, way.deterministic = false;
      expect_same(way);
    }
  }
}

// On one batch, with far more noise than gradient and steps too small to change the gradient: noise
// that repeats itself would be seen as moves that are alike.
TEST_F(GraphGpu, EveryReplayHasNoiseOfItsOwn) {
  Way way;
  way.optimizer = "sgd";
  way.lr = 1e-5;
  way.noise = 100;
  const Training run = make_run(way, true);
  const Batch batch = data::SyntheticData(run.model->options(), 4, 16).next();
  const at::Tensor& weight = run.model->parameters().front()->value;
  ASSERT_GT(weight.numel(), 1000);
  std::vector<at::Tensor> moves;
  for (int i = 0; i < 8; ++i) {
    const at::Tensor before = weight.clone();
    const StepReport report = run.trainer->step(batch);
    if (!has_phase(report, "graph")) continue;
    moves.push_back((weight - before).flatten());
    moves.back().div_(moves.back().norm());
  }
  ASSERT_EQ(moves.size(), 6u);
  for (size_t i = 0; i < moves.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_LT(std::abs(moves[i].dot(moves[j]).item<double>()), 0.2) << i << " and " << j;
}

TEST_F(GraphGpu, ShapesMayChangeAndWatchersMayLook) {
  Way way;
  way.deterministic = false;
  const Training run = make_run(way, true);
  const auto batch_of = [&](int64_t samples, int64_t tokens) {
    return data::SyntheticData(run.model->options(), samples, tokens).next();
  };
  const Batch usual = batch_of(4, 16), other = batch_of(3, 24);
  std::string graphs;
  const auto step = [&](const Batch& batch) {
    const StepReport report = run.trainer->step(batch);
    EXPECT_TRUE(std::isfinite(report.loss));
    EXPECT_EQ(static_cast<int64_t>(report.norms.size()), batch.size());
    graphs += has_phase(report, "graph") ? 'g' : '.';
  };
  for (const Batch* batch :
       {&usual, &usual, &usual, &other, &usual, &other, &other, &other, &other})
    step(*batch);
  run.trainer->record_details(true);
  step(other);
  run.trainer->record_details(false);
  step(other);
  run.model->freeze("model.norm.weight");
  for (int i = 0; i < 3; ++i) step(other);
  EXPECT_EQ(graphs, "..g.g..gg.g..g");
}

// A look at a number in the middle of the step: what a capture cannot have.
class Looking : public models::LinearStack {
 public:
  using LinearStack::LinearStack;
  at::Tensor losses(const Batch& batch) override {
    at::Tensor found = LinearStack::losses(batch);
    seen += found.sum().item<double>();
    return found;
  }
  double seen = 0;
};

TEST_F(GraphGpu, AStepThatCannotBeCapturedRunsAsBefore) {
  Way way;
  way.model = "linear-tiny";
  way.param_dtype = "float32";
  const Training plain = make_run(way, false);
  const auto looking = std::make_shared<Looking>(plain.model->options());
  for (const auto& parameter : looking->parameters())
    parameter->value.copy_(plain.model->parameter(parameter->name).value);
  const Training tried = with_model(looking, way, true);
  CaptureStderr();
  for (int i = 0; i < 6; ++i) {
    const StepReport a = plain.trainer->step(), b = tried.trainer->step();
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_TRUE(has_phase(b, "forward"));
  }
  const std::string said = GetCapturedStderr();
  EXPECT_THAT(said,
              HasSubstr("compile: steps run one kernel at a time: a step could not be captured"));
  EXPECT_EQ(said.find("compile:"), said.rfind("compile:")) << said;
  for (const auto& parameter : plain.model->parameters())
    EXPECT_TRUE(at::equal(parameter->value, looking->parameter(parameter->name).value));
  expect_same({});  // the next one finds everything in order
}

TEST_F(GraphGpu, GraphsComeAndGoWithTheirTrainers) {
  for (int i = 0; i < 3; ++i) {
    Training first = make_run({}, true), second = make_run({}, true);
    for (int step = 0; step < 4; ++step) {
      first.trainer->step();
      second.trainer->step();
    }
    first.trainer.reset();
    EXPECT_TRUE(has_phase(second.trainer->step(), "graph"));
  }
}

// cuBLAS takes 64 MiB for every stream that it sees: that of eager steps is not needed any more.
TEST_F(GraphGpu, ACaptureGivesTheWorkspacesOfEagerStepsBack) {
  const Training run = make_run({}, true);
  const auto allocated = [] {
    return profile::read_memory(c10::Device(c10::kCUDA, 0)).allocated_bytes;
  };
  for (int i = 0; i < StepGraph::kEagerSteps; ++i) run.trainer->step();
  const int64_t before = allocated();
  EXPECT_TRUE(has_phase(run.trainer->step(), "graph"));
  EXPECT_LT(allocated() - before, int64_t{32} << 20);
}

TEST_F(GraphGpu, HoldsAllMicroBatchesOfAStep) {
  Way way;
  way.grad_accum = 3;
  expect_same(way);
}

TEST_F(GraphGpu, TurnsOnByItselfForASmallModel) {
  experiment::ExperimentOptions options;
  options.mode = "auto";
  options.device = "cuda";
  options.batch_size = 4;
  options.seq_length = 16;
  const Json record = experiment::run_experiment(options);
  ASSERT_EQ(record["status"], "ok") << record.dump();
  EXPECT_TRUE(record["time"]["phases_ms"].contains("graph")) << record["time"].dump();
}

TEST_F(GraphGpu, ExperimentsMeasureReplays) {
  experiment::ExperimentOptions options;
  options.mode = "auto";
  options.device = "cuda";
  options.compile = "yes";
  options.batch_size = 4;
  options.seq_length = 16;
  const Json record = experiment::run_experiment(options);
  ASSERT_EQ(record["status"], "ok") << record.dump();
  EXPECT_EQ(record["options"]["warmup"], privacy::PlanTrial::kSteps + 1);
  EXPECT_TRUE(record["time"]["phases_ms"].contains("graph")) << record["time"].dump();
  EXPECT_FALSE(record["time"]["phases_ms"].contains("forward"));
}

// The peak of replayed steps is that of the tensors they work in, not of the pieces their memory
// came in; and the watched step, which is not replayed, has nothing of the graph beside it.
TEST_F(GraphGpu, PeaksOfReplaysAreThoseOfTheirTensors) {
  experiment::ExperimentOptions options;
  options.device = "cuda";
  options.mode = "none";          // gradients are all there at once, in a graph or not
  options.model = "llama3.2-1b";  // of some GiB: cuBLAS's workspaces are not seen
  options.num_layers = 4;
  options.param_dtype = "bfloat16";
  options.batch_size = 4;
  options.seq_length = 512;
  options.compile = "yes";
  const Json graph = experiment::run_experiment(options);
  options.compile = "no";
  const Json eager = experiment::run_experiment(options);
  ASSERT_EQ(graph["status"], "ok") << graph.dump();
  ASSERT_TRUE(graph["time"]["phases_ms"].contains("graph")) << graph["time"].dump();
  const double peak = eager["metrics"]["peak_memory_bytes"];
  EXPECT_NEAR(graph["metrics"]["peak_memory_bytes"].get<double>() / peak, 1, 0.02);
  EXPECT_NEAR(graph["memory"]["peak_bytes"].get<double>() / peak, 1, 0.02);
}

}  // namespace
}  // namespace moonshard::train
