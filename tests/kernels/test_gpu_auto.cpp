// Engine auto plans by times that it measures on this GPU. Skipped with a reason without a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "runtime/base/json.h"
#include "runtime/experiment/experiment.h"
#include "runtime/privacy/plan_trial.h"
#include "runtime/train/step_graph.h"
#include "tests/kernels/on_gpu.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::kernels {
namespace {

class AutoGpu : public OnGpu {};

// Remembered choices whose name has this text.
size_t choices_in(const std::filesystem::path& file, const std::string& text) {
  size_t count = 0;
  if (!std::filesystem::exists(file)) return count;
  const Json all = read_json_file(file);  // outlives the loop over its items
  for (const auto& entry : all["choices"].items())
    count += entry.key().find(text) != std::string::npos ? 1 : 0;
  return count;
}

TEST_F(AutoGpu, MeasuresItsWaysUnlessItMustBeDeterministic) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "tuning.json";
  ::setenv("MOONSHARD_TUNING", file.c_str(), 1);
  experiment::ExperimentOptions options;
  options.model = "llama3-tiny";
  options.mode = "auto";
  options.device = "cuda";
  options.param_dtype = "bfloat16";
  options.batch_size = 3;
  options.seq_length = 88;  // a shape that nothing else in this process has
  const auto timed = [&] { return choices_in(file, "clipped sum"); };
  options.deterministic = true;
  EXPECT_EQ(experiment::run_experiment(options)["status"], "ok");
  EXPECT_EQ(timed(), 0u);
  options.deterministic = false;
  EXPECT_EQ(experiment::run_experiment(options)["status"], "ok");
  EXPECT_GT(timed(), 0u);
  ::unsetenv("MOONSHARD_TUNING");
}

// Steps under two plans, in turns; none of them is a graph. What they have shown is remembered: the
// next run has nothing to try.
TEST_F(AutoGpu, TriesItsPlanOnceBeforeAGraphIsMade) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "tuning.json";
  ::setenv("MOONSHARD_TUNING", file.c_str(), 1);
  experiment::ExperimentOptions options;
  options.model = "llama3.2-1b";
  options.num_layers = 2;
  options.mode = "auto";
  options.device = "cuda";
  options.compile = "yes";
  options.param_dtype = "bfloat16";
  options.batch_size = 2;
  size_t tried = 0;
  for (const int64_t tokens : {136, 264, 520, 1032, 2056}) {  // shapes that nobody else has
    options.seq_length = tokens;
    const auto eager_steps = [&] {
      int64_t eager = 0;
      experiment::measure_experiment(options, [&](const train::StepReport& step, bool) {
        const bool is_graph =
            std::ranges::any_of(step.phases, [](const auto& it) { return it.first == "graph"; });
        eager += is_graph ? 0 : 1;
      });
      return eager;
    };
    const auto known = [&] { return choices_in(file, "steps of auto"); };
    const int64_t first = eager_steps();
    if (known() == tried) continue;  // the other plan is out of the question
    ++tried;
    EXPECT_GT(first, train::StepGraph::kEagerSteps);
    EXPECT_LE(first, privacy::PlanTrial::kSteps + 1) << "and the one with records in the end";
    EXPECT_LT(eager_steps(), first);
    EXPECT_EQ(known(), tried);
  }
  EXPECT_GT(tried, 0u);
  ::unsetenv("MOONSHARD_TUNING");
}

}  // namespace
}  // namespace moonshard::kernels
