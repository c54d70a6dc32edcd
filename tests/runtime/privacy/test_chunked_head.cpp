// A head whose scores exist in chunks of positions (head_chunk): every engine against each sample's
// own backward by plain autograd, what is held, and what is refused. `moonshard verify --options
// head_chunk` has the same for all decoders, dtypes and ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "runtime/base/check.h"
#include "runtime/models/blocks/param_ops.h"
#include "runtime/models/registry.h"
#include "runtime/privacy/engines/engines.h"
#include "runtime/privacy/joined_by_references.h"
#include "runtime/profile/memory.h"
#include "runtime/train/trainer.h"
#include "tests/support/plain_models.h"
#include "tests/support/small_llama.h"
#include "tests/support/tensors.h"
#include "tests/support/text_of_error.h"
#include "tests/support/thread_ranks.h"

namespace moonshard {
namespace {

using testing::HasSubstr;

constexpr int64_t kTokens = 11;
const std::vector<std::string> kPrivate = {"materialize", "ghost", "flash",
                                           "bookkeeping", "auto",  "flash_bookkeeping"};

struct Case {
  std::string engine = "ghost", dtype = "float64", tied = "no", clipping = "flat";
  int64_t chunk = 4, samples = 3, grad_accum = 1;

  std::string text() const {
    return fmt::format("{} {} tied {} {} chunk {} samples {} accum {}", engine, dtype, tied,
                       clipping, chunk, samples, grad_accum);
  }
};

models::ModelOptions options_of(const Case& c) {
  models::ModelOptions options = small_model("llama3-tiny", c.tied);
  options.dtype = c.dtype;
  options.head_chunk = c.chunk;
  options.seed = 4;
  return options;
}

// The second sample has labels in a whole chunk and parts of others alone.
Batch batch_for(const models::Model& model, int64_t samples) {
  Batch batch = data::SyntheticData(model.options(), samples, kTokens).next();
  if (samples > 1) {
    batch.labels[1].slice(0, 3, 9).fill_(-100);
    batch.labels[1][0] = -100;
  }
  return batch;
}

struct Outcome {
  train::StepReport report;
  std::map<std::string, at::Tensor> moved;  ///< with lr = 1: the gradient that was used
};

Outcome step_of(const Case& c, const std::shared_ptr<models::Model>& model, const Batch& batch,
                double bound) {
  privacy::ClipOptions clip;
  clip.mode = c.engine;
  clip.clipping = c.clipping;
  clip.noise_multiplier = 0;
  clip.max_grad_norm = bound;
  optim::OptimizerOptions sgd;
  sgd.lr = 1;
  train::StepOptions step;
  step.grad_accum = c.grad_accum;
  train::Trainer trainer({model, clip, sgd, nullptr, step});
  Outcome outcome;
  outcome.moved = step_gradients(*model, [&] { outcome.report = trainer.step(batch); });
  return outcome;
}

// Norms, and the clipped mean, by their definitions from each sample's own backward.
void expect_reference(const Case& c, double tolerance) {
  SCOPED_TRACE(c.text());
  const std::shared_ptr<models::Model> model = models::make_model(options_of(c));
  const Batch batch = batch_for(*model, c.samples);
  const auto rows = per_sample_reference(*model, batch);
  at::Tensor squares = at::zeros({c.samples}, at::kDouble);
  for (const auto& [name, gradient] : rows)
    squares += gradient.to(at::kDouble).flatten(1).square().sum(1);
  const at::Tensor norms = squares.sqrt();
  const double bound = norms.median().item<double>() * 1.0001;
  const bool clips = c.engine != "none";
  const at::Tensor factors = clips ? (bound / (norms + 1e-6)).clamp_max(1) : at::ones_like(norms);
  std::map<std::string, at::Tensor> want;
  for (const auto& [name, gradient] : rows) {
    std::vector<int64_t> shape(static_cast<size_t>(gradient.dim()), 1);
    shape[0] = c.samples;
    want[name] = (gradient.to(at::kDouble) * factors.view(shape)).mean(0);
  }
  const Outcome got = step_of(c, model, batch, bound);
  EXPECT_LT(relative_difference(got.moved, want), tolerance);
  if (!clips) return;
  ASSERT_EQ(got.report.norms.size(), static_cast<size_t>(c.samples));
  for (int64_t b = 0; b < c.samples; ++b) {
    const double norm = norms[b].item<double>();
    EXPECT_NEAR(got.report.norms[static_cast<size_t>(b)], norm, tolerance * norm) << b;
  }
}

TEST(ChunkedHead, EveryEngineGivesWhatEachSamplesOwnBackwardGives) {
  std::vector<std::string> engines = kPrivate;
  engines.push_back("none");
  for (const auto& [dtype, tolerance] :
       std::vector<std::pair<std::string, double>>{{"float64", 1e-10}, {"float32", 1e-5}}) {
    for (const std::string& engine : engines) {
      for (const char* tied : {"no", "yes"}) {
        for (const int64_t samples : {1, 3}) {
          for (const int64_t chunk : {1, 4, 11, 100}) {
            Case c{engine, dtype, tied};
            c.samples = samples, c.chunk = chunk;
            expect_reference(c, tolerance);
          }
        }
      }
    }
  }
}

TEST(ChunkedHead, AlsoInMicroBatches) {
  for (const char* tied : {"no", "yes"}) {
    for (const char* engine : {"none", "ghost", "bookkeeping", "auto"}) {
      Case c{engine, "float64", tied};
      c.samples = 4, c.grad_accum = 2;
      expect_reference(c, 1e-10);
    }
  }
}

// Against the same step with whole scores, whose engines are verified.
void expect_as_whole(const Case& c, double tolerance, const char* preset = "llama3-tiny",
                     const char* compute = "auto") {
  SCOPED_TRACE(c.text() + " " + preset);
  const auto outcome = [&](int64_t chunk) {
    models::ModelOptions options = options_of(c);
    if (std::string(preset) != "llama3-tiny") {
      options = {};
      options.model = preset;
      options.task = "lm";
      options.device = "cpu";
      options.seed = 4;
      options.dtype = c.dtype;
    }
    options.param_dtype = compute;
    options.head_chunk = chunk;
    const std::shared_ptr<models::Model> model = models::make_model(options);
    return step_of(c, model, batch_for(*model, c.samples), 0.5);
  };
  const Outcome whole = outcome(0), chunks = outcome(c.chunk);
  EXPECT_NEAR(chunks.report.loss, whole.report.loss, tolerance * whole.report.loss);
  EXPECT_LT(relative_difference(chunks.moved, whole.moved), tolerance);
  ASSERT_EQ(chunks.report.norms.size(), whole.report.norms.size());
  for (size_t b = 0; b < whole.report.norms.size(); ++b)
    EXPECT_NEAR(chunks.report.norms[b], whole.report.norms[b], tolerance * whole.report.norms[b]);
}

TEST(ChunkedHead, IsTheWholeHeadWithOtherClippingAndCappedScores) {
  for (const char* clipping : {"flat", "per_layer", "automatic"}) {
    for (const char* tied : {"no", "yes"}) {
      for (const std::string& engine : kPrivate)
        expect_as_whole({engine, "float64", tied, clipping}, 1e-10);
    }
  }
  for (const char* preset : {"gemma2-tiny", "vaultgemma-tiny", "qwen2.5-tiny"}) {
    for (const char* engine : {"flash", "bookkeeping"})
      expect_as_whole({engine, "float64"}, 1e-10, preset);
  }
}

// Rows that the update reads, layers of a block in one launch, fused forms: what a GPU does.
TEST(ChunkedHead, WorksAsOnAGpu) {
  const models::FusedByReferences fused;
  const privacy::JoinedByReferences joined;
  for (const char* tied : {"no", "yes"}) {
    for (const std::string& engine : kPrivate) {
      for (const int64_t samples : {1, 3}) {
        Case c{engine, "float32", tied};
        c.samples = samples;
        expect_as_whole(c, 2e-3);  // kept gradients of 16 bits among the whole ones
      }
    }
  }
  // bfloat16: whole and chunked scores differ by roundings of products.
  for (const char* engine : {"ghost", "bookkeeping"})
    expect_as_whole({engine, "float32"}, 3e-2, "llama3-tiny", "bfloat16");
}

TEST(ChunkedHead, ASampleWithoutAFiniteGradientIsDroppedAlone) {
  for (const std::string& engine : kPrivate) {
    Case c{engine};
    SCOPED_TRACE(c.text());
    // What the head's weight has moved by, before the division by the samples.
    const auto moved = [&](bool with_bad) {
      const std::shared_ptr<models::Model> model = models::make_model(options_of(c));
      model->parameter("model.embed_tokens.weight").value[7].fill_(std::nan(""));
      Batch batch = batch_for(*model, 3);
      batch.input_ids.masked_fill_(batch.input_ids.eq(7), 8);
      batch.input_ids[2][5] = 7;
      if (!with_bad) batch = batch.slice(0, 2);
      const Outcome outcome = step_of(c, model, batch, 0.5);
      EXPECT_EQ(outcome.report.dropped, with_bad ? 1 : 0);
      return outcome.moved.at("lm_head.weight") * batch.size();
    };
    EXPECT_LT((moved(true) - moved(false)).abs().max().item<double>(), 1e-12);
  }
}

// ---- memory ------------------------------------------------------------------------------------

int64_t peak_of(const std::string& engine, int64_t chunk, int64_t samples, int64_t tokens) {
  profile::install_cpu_memory_hook();
  models::ModelOptions options = small_llama(/*deferred=*/false);
  options.num_layers = 1;
  options.vocab_size = 4000;
  options.head_chunk = chunk;
  const std::shared_ptr<models::Model> model = models::make_model(options);
  privacy::ClipOptions clip;
  clip.mode = engine;
  train::Trainer trainer({model, clip, {}, nullptr});
  const Batch batch = data::SyntheticData(model->options(), samples, tokens).next();
  const int64_t before = profile::read_memory(at::kCPU).allocated_bytes;
  profile::reset_peak_memory(at::kCPU);
  trainer.step(batch);
  return profile::read_memory(at::kCPU).max_allocated_bytes - before;
}

TEST(ChunkedHead, ScoresOfOneChunkAloneExist) {
  constexpr int64_t kScores = 512 * 4000 * 4, kRow = 4000 * 24 * 4;
  for (const char* engine : {"none", "ghost", "flash", "bookkeeping", "auto"}) {
    const int64_t whole = peak_of(engine, 0, 1, 512), chunks = peak_of(engine, 32, 1, 512);
    EXPECT_GT(whole, 2 * kScores) << engine;
    // Scores, and two more of their size in the CPU's form; rows, sums and the rest of the model.
    EXPECT_LT(chunks, kScores / 16 * 3 + 8 * kRow + 3'000'000) << engine;
    EXPECT_LT(chunks, whole / 3) << engine;
  }
}

TEST(ChunkedHead, EnginesOfTwoPassesHoldOneRowAndOthersOneForEachSample) {
  constexpr int64_t kRow = 4000 * 24 * 4;
  for (const char* engine : {"ghost", "flash"})
    EXPECT_LT(peak_of(engine, 8, 16, 16) - peak_of(engine, 8, 2, 16), 4 * kRow) << engine;
  EXPECT_GT(peak_of("bookkeeping", 8, 16, 16) - peak_of("bookkeeping", 8, 2, 16), 13 * kRow);
}

TEST(ChunkedHead, KeptBytesAreRowsOfTheHead) {
  const auto kept = [&](int64_t tokens) {
    Case c{"flash_bookkeeping", "float32"};
    models::ModelOptions options = options_of(c);
    options.vocab_size = 4000;
    options.trained = "lm_head.weight";
    const std::shared_ptr<models::Model> model = models::make_model(options);
    const Batch batch = data::SyntheticData(model->options(), 3, tokens).next();
    return step_of(c, model, batch, 1).report.kept_bytes;
  };
  EXPECT_EQ(kept(16), 3 * 4000 * 24 * 4);
  EXPECT_EQ(kept(64), kept(16)) << "positions do not matter";
}

// Rows of the head are what a budget counts first.
TEST(ChunkedHead, AutoCountsTheRowsOfTheHeadInItsBudget) {
  const auto report = [&](int64_t budget_mb) {
    models::ModelOptions options = small_llama(/*deferred=*/false);
    options.vocab_size = 20000;
    options.head_chunk = 4;
    const std::shared_ptr<models::Model> model = models::make_model(options);
    privacy::ClipOptions clip;
    clip.mode = "auto";
    clip.memory_budget_mb = budget_mb;
    train::Trainer trainer({model, clip, {}, nullptr});
    return trainer.step(data::SyntheticData(model->options(), 2, 16).next());
  };
  constexpr int64_t kRows = 2 * 20000 * 24 * 4;  // 3.7 MiB
  EXPECT_GT(report(6).kept_bytes, kRows);
  EXPECT_EQ(report(3).kept_bytes, 0) << "backward runs twice";
}

// ---- the rest of the program -------------------------------------------------------------------

TEST(ChunkedHead, ScoresThatAreAskedForAreWhole) {
  Case c;
  models::ModelOptions options = options_of(c);
  const auto chunked = models::make_model(options);
  options.head_chunk = 0;
  const auto whole = models::make_model(options);
  const Batch batch = batch_for(*whole, 2);
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(chunked->forward(batch), whole->forward(batch)));
  EXPECT_LT((chunked->losses(batch) - whole->losses(batch)).abs().max().item<double>(), 1e-12);
}

// A script's engine sees (a, g) of all positions, as with whole scores.
TEST(ChunkedHead, EnginesWithNormsOfTheirOwnSeeAllPositions) {
  std::map<std::string, std::vector<int64_t>> seen;
  const auto norms = [&](const models::ParamLayer& layer, const at::Tensor& a,
                         const at::Tensor& g) {
    seen[layer.name] = g.sizes().vec();
    return privacy::squared_norms(layer, a, g, {privacy::NormMethod::Materialize});
  };
  privacy::EngineDescription description;
  description.name = "by_hand";
  privacy::register_engine(
      description, [&](const privacy::ClipOptions&, std::shared_ptr<privacy::Clipping> clipping) {
        return privacy::make_custom_engine("by_hand", norms, privacy::Keep::Inputs,
                                           std::move(clipping));
      });
  expect_as_whole({"by_hand", "float64"}, 1e-10);
  expect_as_whole({"by_hand", "float64", "yes"}, 1e-10);
  privacy::unregister_engine("by_hand");
  EXPECT_EQ(seen.at("lm_head"), (std::vector<int64_t>{3, kTokens, 29}));
}

TEST(ChunkedHead, TwoShardedRanksTrainAsOne) {
  for (const char* engine : {"none", "ghost", "bookkeeping", "auto"}) {
    for (const char* tied : {"no", "yes"}) {
      Case c{engine, "float64", tied};
      SCOPED_TRACE(c.text());
      const auto step = [&](const models::ModelOptions& options, const std::string& parallel,
                            const std::shared_ptr<comm::World>& world) {
        const std::shared_ptr<models::Model> model = models::make_model(options);
        privacy::ClipOptions clip;
        clip.mode = engine;
        clip.noise_multiplier = 0;
        clip.max_grad_norm = 0.5;
        train::TrainerParts parts;
        parts.model = model;
        parts.clip = clip;
        parts.optimizer.lr = 1;
        parts.sharding.parallel = parallel;
        parts.world = world;
        train::Trainer trainer(std::move(parts));
        const Batch batch = batch_for(*model, 4);
        const int64_t size = world == nullptr ? 1 : world->size();
        const int64_t rank = world == nullptr ? 0 : world->rank();
        trainer.step(batch.slice(rank * 4 / size, 4 / size));
        trainer.gather();
        std::map<std::string, at::Tensor> weights;
        for (const auto& p : model->parameters()) weights[p->name] = p->value.clone();
        return weights;
      };
      models::ModelOptions options = options_of(c);
      const auto want = step(options, "none", nullptr);
      options.deferred = true;
      std::mutex mutex;
      run_thread_ranks(2, [&](const std::shared_ptr<comm::World>& world) {
        const auto got = step(options, "fsdp", world);
        const std::lock_guard lock(mutex);
        EXPECT_LT(relative_difference(got, want), 1e-12);
      });
    }
  }
}

TEST(ChunkedHead, WhatItCannotBeCombinedWithIsRefused) {
  Case c;
  models::ModelOptions options = options_of(c);
  options.task = "classify";
  EXPECT_THAT(text_of_error([&] { models::make_model(options); }),
              HasSubstr("expected task lm beside head_chunk = 4, got classify, which has one "
                        "position of scores; leave head_chunk out"));
  options.task = "lm";
  options.lora_rank = 2;
  options.lora_targets = "lm_head,q_proj";
  const auto model = models::make_model(options);
  EXPECT_THAT(text_of_error([&] { model->losses(batch_for(*model, 2)); }),
              HasSubstr("layer 'lm_head': expected neither adapter nor bias where head_chunk is "
                        "given, got one; leave it out of lora_targets, or set head_chunk = 0"));
  options = {};
  options.model = "dit-tiny";
  options.head_chunk = 4;
  EXPECT_THAT(text_of_error([&] { models::make_model(options); }),
              HasSubstr("option 'head_chunk' means nothing to model dit-tiny"));
}

}  // namespace
}  // namespace moonshard
