// A head in chunks of positions (head_chunk) on a GPU: products of 16-bit operands into float32
// sums, rows that the update reads, memory, CUDA graphs. Skipped with a reason without a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "runtime/models/registry.h"
#include "runtime/profile/memory.h"
#include "runtime/train/trainer.h"
#include "tests/kernels/on_gpu.h"

namespace moonshard {
namespace {

class ChunkedHeadGpu : public OnGpu {};

const std::vector<std::string> kPrivate = {"materialize", "ghost", "flash",
                                           "bookkeeping", "auto",  "flash_bookkeeping"};

struct Case {
  std::string engine = "auto", param_dtype = "bfloat16", tied = "no", parallel = "none";
  std::string compile = "no";
  int64_t chunk = 96, samples = 3, tokens = 250, vocabulary = 1000;

  std::string text() const {
    return fmt::format("{} {} tied {} {} chunk {} samples {}", engine, param_dtype, tied, parallel,
                       chunk, samples);
  }
};

struct Training {
  std::shared_ptr<models::Model> model;
  std::unique_ptr<train::Trainer> trainer;
};

Training make_run(const Case& c, double bound = 1) {
  models::ModelOptions options;
  options.model = "llama3-tiny";
  options.task = "lm";
  options.device = "cuda";
  options.param_dtype = c.param_dtype;
  options.vocab_size = c.vocabulary;
  options.tie_embeddings = c.tied;
  options.head_chunk = c.chunk;
  options.seed = 6;
  options.deferred = c.parallel == "fsdp";
  Training run;
  run.model = models::make_model(options);
  privacy::ClipOptions clip;
  clip.mode = c.engine;
  clip.noise_multiplier = 0;
  clip.max_grad_norm = bound;
  train::TrainerParts parts;
  parts.model = run.model;
  parts.clip = clip;
  parts.optimizer.lr = 1;
  parts.step.compile = c.compile;
  parts.step.deterministic = true;
  parts.sharding.parallel = c.parallel;
  parts.data = std::make_unique<data::SyntheticData>(run.model->options(), c.samples, c.tokens);
  run.trainer = std::make_unique<train::Trainer>(std::move(parts));
  return run;
}

// What one step moves the weights by, all of them in a row.
at::Tensor moved(const Training& run, train::StepReport* report = nullptr) {
  const auto weights = [&] {
    run.trainer->gather();
    std::vector<at::Tensor> flat;
    for (const auto& p : run.model->parameters())
      flat.push_back(p->value.flatten().to(at::kDouble));
    return at::cat(flat);
  };
  const at::Tensor before = weights();
  const train::StepReport stepped = run.trainer->step();
  if (report != nullptr) *report = stepped;
  return before - weights();
}

TEST_F(ChunkedHeadGpu, IsTheWholeHeadUpToRounding) {
  std::vector<std::string> engines = kPrivate;
  engines.push_back("none");
  for (const auto& [dtype, tolerance] :
       std::vector<std::pair<std::string, double>>{{"float32", 1e-2}, {"bfloat16", 4e-2}}) {
    for (const std::string& engine : engines) {
      for (const char* tied : {"no", "yes"}) {
        for (const int64_t samples : {1, 3}) {
          Case c{engine, dtype, tied};
          c.samples = samples;
          SCOPED_TRACE(c.text());
          train::StepReport chunks, whole;
          const at::Tensor got = moved(make_run(c), &chunks);
          c.chunk = 0;
          const at::Tensor want = moved(make_run(c), &whole);
          EXPECT_NEAR(chunks.loss, whole.loss, 1e-3 * whole.loss);
          EXPECT_LT(difference(got, want), tolerance);
          for (size_t b = 0; b < whole.norms.size(); ++b)
            EXPECT_NEAR(chunks.norms[b], whole.norms[b], tolerance * whole.norms[b]) << b;
        }
      }
    }
  }
}

// The norm is that of the very numbers that are summed: a single sample that is clipped moves the
// weights by the bound, and never by more.
TEST_F(ChunkedHeadGpu, AClippedSampleMovesTheWeightsByTheBound) {
  for (const std::string& engine : kPrivate) {
    for (const char* tied : {"no", "yes"}) {
      for (const char* parallel : {"none", "fsdp"}) {
        Case c{engine, "bfloat16", tied, parallel};
        c.samples = 1;
        SCOPED_TRACE(c.text());
        const double length = moved(make_run(c, 0.5)).norm().item<double>();
        EXPECT_NEAR(length, 0.5, 0.5 * 2e-2);  // norms of other layers have margins
        EXPECT_LT(length, 0.5 * (1 + 2e-5));   // weights are rounded
      }
    }
  }
}

TEST_F(ChunkedHeadGpu, ScoresOfOneChunkAloneExist) {
  const auto peak = [](const std::string& engine, int64_t chunk) {
    Case c{engine};
    c.samples = 1, c.tokens = 4096, c.vocabulary = 32000, c.chunk = chunk;
    const Training run = make_run(c);
    run.trainer->step();
    profile::reset_peak_memory(c10::Device(c10::kCUDA, 0));
    run.trainer->step();
    return profile::read_memory(c10::Device(c10::kCUDA, 0)).max_allocated_bytes;
  };
  constexpr int64_t kScores = int64_t{4096} * 32000 * 2;
  for (const char* engine : {"none", "ghost", "flash", "bookkeeping", "auto"})
    EXPECT_LT(peak(engine, 256), peak(engine, 0) - kScores / 2) << engine;
}

TEST_F(ChunkedHeadGpu, GraphsGiveTheDigitsOfOtherSteps) {
  for (const char* engine : {"none", "ghost", "bookkeeping", "auto"}) {
    for (const char* tied : {"no", "yes"}) {
      Case c{engine, "bfloat16", tied};
      SCOPED_TRACE(c.text());
      const Training plain = make_run(c);
      c.compile = "yes";
      const Training compiled = make_run(c);
      bool replayed = false;
      for (int i = 0; i < 6; ++i) {
        const train::StepReport a = plain.trainer->step(), b = compiled.trainer->step();
        EXPECT_EQ(a.loss, b.loss) << i;
        EXPECT_EQ(a.norms, b.norms) << i;
        for (const auto& [phase, ms] : b.phases) replayed = replayed || phase == "graph";
      }
      EXPECT_TRUE(replayed);
    }
  }
}

}  // namespace
}  // namespace moonshard
