// Engine auto's first steps, under two plans in turns: what of it a trainer sees. References of the
// kernels stand in for them, with times that were "remembered": kept gradients are a little faster.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "runtime/base/files.h"
#include "runtime/base/json.h"
#include "runtime/privacy/joined_by_references.h"
#include "runtime/privacy/plan_trial.h"
#include "runtime/privacy/timed_ways.h"
#include "runtime/profile/kernel_timer.h"
#include "runtime/train/step_graph.h"
#include "tests/support/small_llama.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

namespace moonshard::train {
namespace {

using privacy::JoinedByReferences;
using privacy::PlanTrial;

const std::string kMachine = profile::machine_of(c10::Device(c10::kCPU));

models::ModelOptions wide_llama(int64_t hidden) {
  models::ModelOptions options = small_llama(/*deferred=*/false);
  options.num_layers = 2;
  options.hidden_dim = options.intermediate_dim = hidden;
  options.head_dim = 32;
  options.vocab_size = 32;
  return options;
}

// Of all layers that read one input, at two samples of six tokens.
std::set<std::string> shapes_of(const models::Model& model) {
  std::map<const models::ParamLayer*, privacy::UnitShape> units;
  for (const auto& layer : model.layers()) {
    const at::Tensor& weight = layer->weight->value;
    if (weight.dim() != 2 || layer->kind == models::kinds::kEmbedding) continue;
    const models::ParamLayer* first = layer->same_input_as;
    privacy::UnitShape& unit = units[first != nullptr ? first : layer.get()];
    unit.samples = 2, unit.positions = 6, unit.in = weight.size(1);
    unit.out.push_back(weight.size(0));
  }
  std::set<std::string> shapes;
  for (const auto& [first, unit] : units) shapes.insert(unit.text());
  return shapes;
}

class TriedPlans : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("MOONSHARD_TUNING", file().c_str(), 1); }
  void TearDown() override { ::unsetenv("MOONSHARD_TUNING"); }
  std::filesystem::path file() const { return folder_.path() / "tuning.json"; }

  SmallTraining make_run(int64_t hidden, const std::string& compile,
                         const std::string& clipping = "flat") {
    privacy::ClipOptions clip;
    clip.mode = "auto";
    clip.clipping = clipping;
    StepOptions step;
    step.compile = compile;
    SmallTraining run = small_training(wide_llama(hidden), {}, clip, {}, step);
    remember_times(*run.model);
    return run;
  }
  void remember_times(const models::Model& model) const {
    if (std::filesystem::exists(file())) return;
    Json entries = Json::object();
    for (const std::string& shape : shapes_of(model))
      entries[kMachine + " | " + shape] = {{"choice", "keep gradients"},
                                           {"ms",
                                            {{"ghost", 1.0},
                                             {"flash", 2.0},
                                             {"sum", 1.0},
                                             {"keep", 1.7},
                                             {"update", 0.1},
                                             {"update_rows", 0.1},
                                             {"sum_rows", 0.1}}}};
    write_file_atomically(file(), to_text({{"choices", entries}}));
  }
  /// What was found about whole steps.
  std::map<std::string, std::string> found() const {
    const Json all = read_json_file(file());
    std::map<std::string, std::string> verdicts;
    for (const auto& [key, entry] : all["choices"].items())
      if (key.find("steps of auto") != std::string::npos) verdicts[key] = entry["choice"];
    return verdicts;
  }

 private:
  TemporaryFolder folder_;
};

// Kept gradients need more memory here than inputs do: which plan a step had shows in its bytes.
TEST_F(TriedPlans, AreInTurnsUntilOneIsFound) {
  const JoinedByReferences timed(JoinedByReferences::Costs::Timings);
  const SmallTraining run = make_run(128, "no");
  std::vector<int64_t> kept;
  while (found().empty() && kept.size() < 10) kept.push_back(run.trainer->step().kept_bytes);
  ASSERT_GE(kept.size(), 4u);
  ASSERT_LE(kept.size(), static_cast<size_t>(PlanTrial::kSteps));
  EXPECT_LT(kept[1], kept[0]) << "all inputs, beside all gradients";
  for (size_t i = 2; i < kept.size(); ++i) EXPECT_EQ(kept[i], kept[i - 2]) << i;
  const bool other_won = found().begin()->second == "one rule for all layers";
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(run.trainer->step().kept_bytes, kept[other_won ? 1 : 0]) << "from now on";
  // Remembered: another run begins with what was found.
  const SmallTraining again = make_run(128, "no");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(again.trainer->step().kept_bytes, kept[other_won ? 1 : 0]);
  EXPECT_EQ(found().size(), 1u);
}

TEST_F(TriedPlans, AreNoGraphsBeforeThat) {
  const JoinedByReferences timed(JoinedByReferences::Costs::Timings);
  const ImitatedGraphs imitated;
  const SmallTraining run = make_run(256, "yes");
  const auto is_graph = [](const StepReport& step) {
    return std::ranges::any_of(step.phases,
                               [](const auto& phase) { return phase.first == "graph"; });
  };
  bool was_found = false;
  for (int i = 0; i < PlanTrial::kSteps + 2; ++i) {
    EXPECT_EQ(is_graph(run.trainer->step()), was_found) << "step " << i + 1;
    was_found = !found().empty();
  }
  EXPECT_TRUE(was_found);
}

// Every rank has a clock, and the first one's counts: both keep the same in every step.
TEST_F(TriedPlans, AreThoseOfTheFirstRank) {
  const JoinedByReferences timed(JoinedByReferences::Costs::Timings);
  remember_times(*models::make_model(wide_llama(160)));
  constexpr int kSteps = PlanTrial::kSteps + 2;
  std::vector<int64_t> kept[2];
  run_thread_ranks(2, [&](const std::shared_ptr<comm::World>& world) {
    TrainerParts parts;
    parts.model = models::make_model(wide_llama(160));
    parts.clip.mode = "auto";
    parts.step.compile = "no";
    parts.sharding.parallel = "ddp";
    parts.world = world;
    parts.privacy = privacy::reproducible_noise();
    parts.data = std::make_unique<data::SyntheticData>(parts.model->options(), 2, 6);
    Trainer trainer(std::move(parts));
    for (int i = 0; i < kSteps; ++i) kept[world->rank()].push_back(trainer.step().kept_bytes);
  });
  EXPECT_EQ(kept[0], kept[1]);
  EXPECT_LT(kept[0][1], kept[0][0]) << "two plans";
  ASSERT_EQ(found().size(), 1u);
  EXPECT_NE(found().begin()->first.find("; summed; 2 ranks"), std::string::npos);
  const bool other_won = found().begin()->second == "one rule for all layers";
  EXPECT_EQ(kept[0].back(), kept[0][other_won ? 1 : 0]);
}

// Nothing waits for factors then: whatever the plan, all layers do the same.
TEST_F(TriedPlans, AreNoneWithAFactorForEachLayer) {
  const JoinedByReferences timed(JoinedByReferences::Costs::Timings);
  const ImitatedGraphs imitated;
  const SmallTraining run = make_run(192, "yes", "per_layer");
  for (int i = 0; i < PlanTrial::kSteps; ++i) {
    const StepReport step = run.trainer->step();
    const bool is_graph =
        std::ranges::any_of(step.phases, [](const auto& phase) { return phase.first == "graph"; });
    EXPECT_EQ(is_graph, i >= StepGraph::kEagerSteps) << "nothing is tried before it";
  }
  EXPECT_TRUE(found().empty());
}

// What was found for one size says nothing about others.
TEST_F(TriedPlans, AreOfOneSize) {
  const JoinedByReferences timed(JoinedByReferences::Costs::Timings);
  const SmallTraining run = make_run(224, "no");
  const Batch usual = data::SyntheticData(run.model->options(), 2, 6).next(),
              larger = data::SyntheticData(run.model->options(), 3, 6).next();
  const int64_t own = run.trainer->step(usual).kept_bytes;
  EXPECT_LT(run.trainer->step(usual).kept_bytes, own) << "the other plan's turn";
  run.trainer->step(usual);
  // Again the other plan's turn, but for a batch of another size.
  const int64_t of_larger = run.trainer->step(larger).kept_bytes;
  EXPECT_EQ(run.trainer->step(larger).kept_bytes, of_larger);
  EXPECT_EQ(2 * of_larger, 3 * own);
  EXPECT_TRUE(found().empty());
}

TEST_F(TriedPlans, AreNotTriedByFormulas) {
  const JoinedByReferences formulas;
  const SmallTraining run = make_run(128, "no");
  const int64_t kept = run.trainer->step().kept_bytes;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run.trainer->step().kept_bytes, kept);
  EXPECT_TRUE(found().empty());
}

}  // namespace
}  // namespace moonshard::train
