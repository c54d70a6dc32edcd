#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/comm/world.h"
#include "runtime/experiment/experiment.h"

namespace moonshard::experiment {
namespace {

ExperimentOptions tiny() {
  ExperimentOptions options;
  options.model = "linear-tiny";
  options.device = "cpu";
  return options;
}

TEST(Experiment, RecordsEverySampleAndWhatIsDerivedFromThem) {
  ExperimentOptions options = tiny();
  options.mode = "materialize";
  options.iters = 4;
  options.warmup = 2;
  int steps_seen = 0;
  const Json record =
      run_experiment(options, [&](const train::StepReport&, bool) { ++steps_seen; });
  EXPECT_EQ(record["status"], "ok");
  EXPECT_EQ(steps_seen, 6);
  ASSERT_EQ(record["steps"].size(), 6u);
  EXPECT_TRUE(record["steps"][1]["warmup"].get<bool>());
  EXPECT_FALSE(record["steps"][2]["warmup"].get<bool>());
  EXPECT_EQ(record["time"]["step_ms"]["count"], 4);
  const Json& metrics = record["metrics"];
  EXPECT_EQ(metrics["num_parameters"], 4 * (256 * 256 + 256));
  // Every sample's gradient is kept: the peak is at least batch times the model.
  EXPECT_GE(metrics["peak_memory_bytes"].get<int64_t>(),
            64 * metrics["parameter_bytes"].get<int64_t>());
  EXPECT_TRUE(record["privacy"]["epsilon"].is_null());
  EXPECT_EQ(record["memory_stages"][1]["stage"], "after data");
  EXPECT_EQ(record["memory_stages"][2]["stage"], "after model creation");
}

TEST(Experiment, TheSameSeedGivesTheSameNumbersBitForBit) {
  ExperimentOptions options = tiny();
  options.mode = "materialize";
  options.secure = false;
  options.lr = 0.1;
  const auto losses = [&options] {
    std::vector<double> list;
    run_experiment(options,
                   [&](const train::StepReport& report, bool) { list.push_back(report.loss); });
    return list;
  };
  const auto first = losses();
  EXPECT_EQ(losses(), first);
  options.seed = 1;
  EXPECT_NE(losses(), first);
}

TEST(Experiment, ASeedThatNobodyGaveIsDrawnAndRecorded) {
  ExperimentOptions options = tiny();
  options.seed = -1;
  const Json record = run_experiment(options);
  EXPECT_EQ(record["options"]["seed"], -1) << "the point is the same one whatever is drawn";
  EXPECT_EQ(record["seed"].get<double>(), static_cast<double>(comm::job_seed()));
  options.seed = 7;
  EXPECT_EQ(run_experiment(options)["seed"], 7);
}

TEST(Experiment, OutOfMemoryIsAnOutcomeAndTheNextRunIsUnaffected) {
  ExperimentOptions options = tiny();
  options.mode = "materialize";
  options.memory_limit_mb = 20;
  const Json record = run_experiment(options);
  EXPECT_EQ(record["status"], "oom");
  EXPECT_GT(record["bytes_asked"].get<int64_t>(), 0);
  EXPECT_THAT(record["error"].get<std::string>(), ::testing::HasSubstr("memory_limit_mb"));
  options.memory_limit_mb = 0;
  EXPECT_EQ(run_experiment(options)["status"], "ok");
}

TEST(Experiment, TrainingLearns) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    ExperimentOptions options = tiny();
    options.optimizer = optimizer;
    options.lr = std::string(optimizer) == "sgd" ? 2.0 : 1e-3;
    options.weight_decay = 0;
    options.iters = 30;
    double first = 0;
    const Json record = run_experiment(options, [&](const train::StepReport& report, bool) {
      if (report.step == 1) first = report.loss;
    });
    // Targets are independent of the inputs: the best there is is to predict 0, with loss 1.
    EXPECT_GT(first, 1.5);
    EXPECT_LT(record["metrics"]["final_loss"].get<double>(), 0.8 * first) << optimizer;
  }
}

TEST(Experiment, AnInterruptStopsBetweenLayers) {
  request_interrupt();
  EXPECT_THROW(run_experiment(tiny()), Interrupted);
  clear_interrupt();
  EXPECT_EQ(run_experiment(tiny())["status"], "ok");
}

TEST(Experiment, AnInterruptKeepsTheStepsBeforeIt) {
  ExperimentOptions options = tiny();
  options.warmup = 1;
  options.iters = 5;
  int64_t steps = 0;
  try {
    measure_experiment(options, [&](const train::StepReport&, bool) {
      if (++steps == 4) request_interrupt();
    });
    ADD_FAILURE() << "it went on";
  } catch (const InterruptedExperiment& stopped) {
    EXPECT_EQ(std::string(stopped.what()), "interrupted after 4 of 6 steps");
    EXPECT_EQ(stopped.record.status, "interrupted");
    EXPECT_EQ(stopped.record.steps.size(), 4u);
    EXPECT_EQ(stopped.record.time.samples_ms.size(), 3u);
    EXPECT_GT(stopped.record.metrics.median_time_ms, 0);
  }
  clear_interrupt();
  EXPECT_EQ(run_experiment(options)["status"], "ok");
}

TEST(Experiment, AnInterruptInTheWarmUpKeepsItsStepsToo) {
  ExperimentOptions options = tiny();
  options.warmup = 2;
  try {
    measure_experiment(options, [](const train::StepReport&, bool) { request_interrupt(); });
    ADD_FAILURE() << "it went on";
  } catch (const InterruptedExperiment& stopped) {
    EXPECT_EQ(stopped.record.steps.size(), 1u);
  }
  clear_interrupt();
}

TEST(Experiment, SeedResultHasTheSuitesKeysExactly) {
  const Json seed = seed_result(run_experiment(tiny()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : seed.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"mode", "seq_length", "batch_size", "total_batch_size",
                                            "num_gpus", "peak_memory_mb", "peak_memory_gb",
                                            "avg_time_ms", "config"}));
  std::vector<std::string> config;
  for (const auto& [key, value] : seed["config"].items()) config.push_back(key);
  EXPECT_EQ(config, (std::vector<std::string>{"model_name", "vocab_size", "learning_rate", "sigma",
                                              "max_grad_norm"}));
}

TEST(Experiment, EffectiveOptionsAreResolved) {
  const Json options =
      resolve_experiment_table({{"model", "linear"}, {"mode", "no_dp"}, {"sigma", 2}});
  EXPECT_EQ(options["batch_size"], 8192);
  EXPECT_EQ(options["hidden_dim"], 16384);
  EXPECT_EQ(options["mode"], "none");
  EXPECT_EQ(options["noise_multiplier"], 2.0);
  EXPECT_EQ(options["task"], "regress");
}

}  // namespace
}  // namespace moonshard::experiment
