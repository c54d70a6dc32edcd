// Micro-batches of one size, filled up with rows that count nowhere: what a step reports, and that
// steps with different numbers of samples can be one graph. Sums and weights: moonshard verify
// --options padded.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/data/dataset_source.h"
#include "runtime/models/registry.h"
#include "runtime/train/step_graph.h"
#include "runtime/train/trainer.h"
#include "runtime/verify/subject_data.h"

namespace moonshard::train {
namespace {

struct Draws {
  std::string engine = "flash_bookkeeping", model = "llama3-tiny", clipping = "flat";
  bool padded = true, compile = false;
  int64_t batch_size = 12;
};

struct DrawnTraining {
  std::shared_ptr<models::Model> model;
  std::unique_ptr<Trainer> trainer;
};

DrawnTraining make_training(const Draws& draws) {
  models::ModelOptions options;
  options.model = draws.model;
  options.device = "cpu";
  options.dtype = options.param_dtype = "float64";
  if (draws.model != "linear-tiny") options.num_layers = 1;
  DrawnTraining made;
  made.model = models::make_model(options);
  privacy::ClipOptions clip;
  clip.mode = draws.engine;
  clip.clipping = draws.clipping;
  clip.max_grad_norm = 0.3;
  clip.noise_multiplier = 0.4;
  clip.quantile_noise = 1;
  optim::OptimizerOptions optimizer;
  optimizer.lr = 0.05;
  data::LoaderOptions loader{"poisson", draws.batch_size, 1, 6, 0};
  loader.pad_batches = draws.padded;
  loader.skip_empty = draws.engine == "none";
  StepOptions step;
  step.compile = draws.compile ? "yes" : "no";
  const Batch examples = data::SyntheticData(made.model->options(), 24, 5).next();
  made.trainer = std::make_unique<Trainer>(
      TrainerParts{made.model,
                   clip,
                   optimizer,
                   std::make_unique<data::DatasetSource>(verify::as_dataset(examples), loader,
                                                         RandomWords(uint64_t{3}), c10::kCPU),
                   step,
                   {},
                   nullptr,
                   privacy::reproducible_noise()});
  return made;
}

double largest_difference(const DrawnTraining& a, const DrawnTraining& b) {
  double largest = 0;
  for (const auto& parameter : a.model->parameters())
    largest = std::max(
        largest,
        (parameter->value - b.model->parameter(parameter->name).value).abs().max().item<double>());
  return largest;
}

TEST(PaddedBatches, ReportsCountSamplesAlone) {
  for (const char* engine : {"none", "ghost", "auto"}) {
    for (const char* model : {"llama3-tiny", "dit-tiny"}) {
      for (const int64_t batch_size : {4, 12}) {
        Draws draws{engine, model, "adaptive", true, false, batch_size};
        const DrawnTraining padded = make_training(draws);
        draws.padded = false;
        const DrawnTraining plain = make_training(draws);
        SCOPED_TRACE(fmt::format("{} {} in batches of {}", engine, model, batch_size));
        for (int i = 0; i < 4; ++i) {
          const StepReport want = plain.trainer->step(), got = padded.trainer->step();
          EXPECT_EQ(got.batch_size, want.batch_size);
          EXPECT_EQ(got.tokens, want.tokens);
          EXPECT_NEAR(got.loss, want.loss, 1e-12);
          EXPECT_NEAR(got.clip_fraction, want.clip_fraction, 1e-12);
          ASSERT_EQ(got.norms.size(), want.norms.size());
          ASSERT_EQ(got.all_norms.size(), want.all_norms.size());
          for (size_t k = 0; k < got.norms.size(); ++k)
            EXPECT_NEAR(got.norms[k], want.norms[k], 1e-10 * want.norms[k]);
          EXPECT_EQ(got.dropped, 0);
          // The count of adaptive clipping has the samples alone, too.
          EXPECT_NEAR(padded.trainer->clip_bound() / plain.trainer->clip_bound(), 1, 1e-10);
        }
        EXPECT_LT(largest_difference(padded, plain), 1e-10);
      }
    }
  }
}

// Graphs are of one shape: without padding nearly every draw would have another.
TEST(PaddedBatches, DrawsOfAnySizeAreReplayedAsOneGraph) {
  const ImitatedGraphs imitated;
  for (const char* engine : {"none", "ghost", "flash_bookkeeping"}) {
    const DrawnTraining eager = make_training({engine});
    const DrawnTraining compiled = make_training({engine, "llama3-tiny", "flat", true, true});
    std::set<int64_t> sizes_of_replays;
    for (int i = 0; i < 9; ++i) {
      const StepReport want = eager.trainer->step(), got = compiled.trainer->step();
      EXPECT_EQ(got.loss, want.loss) << engine;
      EXPECT_EQ(got.norms, want.norms) << engine;
      EXPECT_EQ(got.factors, want.factors) << engine;
      for (const auto& [phase, ms] : got.phases)
        if (phase == "graph") sizes_of_replays.insert(got.batch_size);
    }
    EXPECT_GE(sizes_of_replays.size(), 3u) << engine;
    EXPECT_EQ(largest_difference(eager, compiled), 0) << engine;
  }
}

}  // namespace
}  // namespace moonshard::train
