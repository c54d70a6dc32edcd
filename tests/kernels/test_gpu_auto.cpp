// Engine auto plans by times that it measures on this GPU. Skipped with a reason without a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "runtime/base/json.h"
#include "runtime/experiment/experiment.h"
#include "tests/kernels/on_gpu.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::kernels {
namespace {

class AutoGpu : public OnGpu {};

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
  const auto timed = [&] {
    size_t count = 0;
    if (!std::filesystem::exists(file)) return count;
    const Json all = read_json_file(file);  // outlives the loop over its items
    for (const auto& entry : all["choices"].items())
      count += entry.key().find("clipped sum") != std::string::npos ? 1 : 0;
    return count;
  };
  options.deterministic = true;
  EXPECT_EQ(experiment::run_experiment(options)["status"], "ok");
  EXPECT_EQ(timed(), 0u);
  options.deterministic = false;
  EXPECT_EQ(experiment::run_experiment(options)["status"], "ok");
  EXPECT_GT(timed(), 0u);
  ::unsetenv("MOONSHARD_TUNING");
}

}  // namespace
}  // namespace moonshard::kernels
