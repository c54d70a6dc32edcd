// Option compile on several ranks: all of them capture, replay or do neither. Ranks are threads
// here, with Gloo between them, and graphs are imitated.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include "runtime/train/step_graph.h"
#include "tests/support/small_llama.h"
#include "tests/support/thread_ranks.h"

namespace moonshard::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::internal::CaptureStderr;
using testing::internal::GetCapturedStderr;

constexpr int kRanks = 2;

/// What a rank did: a letter for every step, and the numbers of its reports and weights.
struct Trained {
  std::string graphs, numbers;
};

using Sizes = std::vector<std::array<int64_t, kRanks>>;  ///< samples by step and rank

Trained train_rank(std::shared_ptr<comm::World> world, const Sizes& sizes,
                   const std::string& wrapper, const std::string& engine,
                   const std::string& compile, int failing_rank) {
  const int rank = world->rank();
  const ImitatedGraphs imitated(/*fails=*/rank == failing_rank);
  TrainerParts parts;
  parts.model = models::make_model(small_model("llama3-tiny", "no"));
  parts.clip.mode = engine;
  parts.clip.noise_multiplier = 0.5;
  parts.optimizer.lr = 0.01;
  parts.step.compile = compile;
  parts.sharding.parallel = wrapper == "ddp" ? "ddp" : "fsdp";
  if (wrapper != "ddp") parts.sharding.sharding = wrapper;
  parts.world = std::move(world);
  parts.privacy = privacy::reproducible_noise();
  const auto model = parts.model;
  Trainer trainer(std::move(parts));
  Trained trained;
  for (const auto& by_rank : sizes) {
    const int64_t samples = by_rank[static_cast<size_t>(rank)];
    const Batch most = data::SyntheticData(model->options(), 5, 6).next();
    const StepReport report =
        trainer.step(most.each([&](const at::Tensor& rows) { return rows.narrow(0, 0, samples); }));
    const bool is_graph = std::any_of(report.phases.begin(), report.phases.end(),
                                      [](const auto& phase) { return phase.first == "graph"; });
    trained.graphs += is_graph ? 'g' : '.';
    trained.numbers += fmt::format("{} {};", report.loss, fmt::join(report.norms, " "));
    for (const comm::Traffic& sent : report.traffic)
      trained.numbers += fmt::format(" {} {} {}", sent.operation, sent.count, sent.bytes);
  }
  trainer.gather();
  for (const auto& parameter : model->parameters())
    trained.numbers += fmt::format(" {}", parameter->value.to(at::kDouble).sum().item<double>());
  return trained;
}

std::array<Trained, kRanks> train(const Sizes& sizes, const std::string& wrapper,
                                  const std::string& engine, const std::string& compile,
                                  int failing_rank = -1) {
  std::array<Trained, kRanks> trained;
  run_thread_ranks(kRanks, [&](const std::shared_ptr<comm::World>& world) {
    trained[static_cast<size_t>(world->rank())] =
        train_rank(world, sizes, wrapper, engine, compile, failing_rank);
  });
  return trained;
}

// The shapes of one rank change: the other, whose own fit, does not replay without it. When both
// have had three equal steps they capture together, also the rank whose graph still fits.
TEST(GraphsOfRanks, AreCapturedAndReplayedTogether) {
  const Sizes sizes{{2, 3}, {2, 3}, {2, 3}, {2, 3}, {2, 1}, {2, 3}, {2, 4},
                    {2, 4}, {2, 4}, {2, 4}, {5, 4}, {2, 0}, {2, 4}};
  for (const char* wrapper : {"ddp", "zero3"}) {
    for (const char* engine : {"none", "bookkeeping", "ghost"}) {
      const auto plain = train(sizes, wrapper, engine, "no");
      CaptureStderr();
      const auto compiled = train(sizes, wrapper, engine, "yes");
      EXPECT_THAT(GetCapturedStderr(), HasSubstr("another shape"));
      for (size_t rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(compiled[rank].graphs, "..gg.g..gg..g") << wrapper << " " << engine;
        EXPECT_EQ(compiled[rank].numbers, plain[rank].numbers) << wrapper << " " << engine;
      }
    }
  }
}

TEST(GraphsOfRanks, TurnOnByThemselvesInTheSameStep) {
  const Sizes sizes(6, {2, 3});
  CaptureStderr();
  const auto trained = train(sizes, "zero3", "bookkeeping", "auto");
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("replayed as CUDA graphs"));
  EXPECT_EQ(trained[0].graphs, "...ggg");
  EXPECT_EQ(trained[1].graphs, "...ggg");
}

TEST(GraphsOfRanks, AreGivenUpTogetherWhereOneRankCannotCapture) {
  const Sizes sizes(5, {2, 3});
  const auto plain = train(sizes, "zero3", "bookkeeping", "no");
  CaptureStderr();
  const auto tried = train(sizes, "zero3", "bookkeeping", "yes", /*failing_rank=*/1);
  const std::string said = GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("could not be captured: as the test wanted"));
  EXPECT_THAT(said, HasSubstr("could not be captured on another rank"));
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(tried[rank].graphs, "..g..") << "the time of the attempt";
    // The attempt was computed and dropped: its collectives count, its numbers are those of the
    // step that was run behind it.
    EXPECT_THAT(tried[rank].numbers,
                testing::EndsWith(plain[rank].numbers.substr(plain[rank].numbers.rfind(';') + 40)));
  }
}

}  // namespace
}  // namespace moonshard::train
