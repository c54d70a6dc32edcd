// What needs a GPU: built everywhere, skipped with a reason where there is none.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/experiment/experiment.h"
#include "runtime/privacy/plan_trial.h"
#include "runtime/verify/verify.h"
#include "tests/kernels/on_gpu.h"

namespace moonshard {
namespace {

class Gpu : public OnGpu {};

TEST_F(Gpu, CounterNoiseEqualsTheReference) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    at::Tensor host = at::zeros({100'003}, type);
    at::Tensor device = host.to(at::kCUDA);
    kernels::add_counter_noise(host, 1.5, {5, 6, 7}, 13);
    kernels::add_counter_noise(device, 1.5, {5, 6, 7}, 13);
    // The words are equal; logf, sinf and cosf of the two differ in their last bits.
    EXPECT_LT((device.cpu() - host).abs().max().item<double>(), 1e-5);
  }
}

TEST_F(Gpu, TrainsAsOnTheCpu) {
  for (const std::string& mode : privacy::engine_names()) {
    experiment::ExperimentOptions options;
    options.mode = mode;
    options.secure = false;
    options.dtype = "float64";
    options.lr = 0.1;
    // A GPU has as many steps to warm up, for auto; a graph would have more.
    options.compile = "no";
    options.warmup = privacy::PlanTrial::kSteps;
    options.batch_size = 4;
    options.seq_length = 16;
    options.device = "cpu";
    const Json host = experiment::run_experiment(options);
    options.device = "cuda";
    const Json device = experiment::run_experiment(options);
    ASSERT_EQ(device["status"], "ok") << device.dump();
    // The noise is drawn in float32: its last bits differ by device, and all steps carry that on.
    EXPECT_NEAR(device["metrics"]["final_loss"].get<double>(),
                host["metrics"]["final_loss"].get<double>(), 1e-4)
        << mode;
    EXPECT_GT(device["metrics"]["peak_memory_bytes"].get<int64_t>(), 0);
    EXPECT_GT(device["metrics"]["median_time_ms"].get<double>(), 0);
  }
}

TEST_F(Gpu, EveryEngineEqualsBatchOfOneGradients) {
  verify::VerifyOptions options;
  options.device = "cuda";
  for (const char* model : {"llama3-tiny", "qwen2.5-tiny", "dit-tiny"}) {
    for (const char* variant : {"default", "accumulation", "per_layer", "checkpointing"}) {
      options.model = model;
      options.options = variant;
      for (const verify::Cell& cell : verify::verify(options)) {
        EXPECT_TRUE(cell.ok) << cell.engine << " " << cell.model << " " << cell.layer << " "
                             << cell.options << " " << cell.dtype << ": " << cell.max_rel_err << " "
                             << cell.worst << " " << cell.error;
      }
    }
  }
}

}  // namespace
}  // namespace moonshard
