// Searches: what fits, what does not, the front, and the same order every time.
#include <gtest/gtest.h>

#include "runtime/plan/search.h"
#include "runtime/plan/search_axes.h"
#include "tests/runtime/plan/test_machine.h"

namespace moonshard::plan {
namespace {

using experiment::ExperimentOptions;

SearchSpace space_of(const Json& asked, const Cluster& cluster, int64_t global_batch) {
  SearchSpace space;
  space.base = resolve_for(asked, cluster);
  space.global_batch = global_batch;
  space.axes = default_axes(space.base, cluster, asked, global_batch);
  return space;
}

TEST(PlanSearch, TheFrontHasNoPointThatAnotherBeats) {
  Cluster cluster = one_gpu();
  cluster.gpus = 8;
  cluster.memory_bytes = 12e9;
  const Json asked{{"model", "llama3.2-1b"}, {"seq_length", 1024}, {"mode", "bookkeeping"}};
  const SearchResult found = search(space_of(asked, cluster, 64), cluster, 5);
  ASSERT_GT(found.fits, 0);
  ASSERT_LT(found.fits, found.tried);
  ASSERT_FALSE(found.too_large.empty());
  for (const Candidate& candidate : found.fitting) {
    EXPECT_LE(candidate.prediction.memory.peak, cluster.memory_bytes);
    EXPECT_EQ(candidate.options.batch_size * candidate.options.grad_accum * 8, 64);
  }
  for (size_t i = 1; i < found.front.size(); ++i) {
    EXPECT_LT(found.front[i].prediction.memory.peak, found.front[i - 1].prediction.memory.peak);
    EXPECT_LE(found.front[i].prediction.samples_per_s, found.front[i - 1].prediction.samples_per_s);
  }
  const Candidate& largest = found.too_large[0];
  EXPECT_NE(why_not(largest.options, largest.prediction, cluster).find("saves"), std::string::npos);
}

std::vector<Json> options_of(const SearchResult& found) {
  std::vector<Json> all;
  const auto add = [&](const ExperimentOptions& options) {
    all.push_back(experiment::experiment_schema().to_json(&options));
  };
  for (const auto* list : {&found.fitting, &found.too_large, &found.front})
    for (const Candidate& candidate : *list) {
      add(candidate.options);
      for (const ExperimentOptions& other : candidate.alike) add(other);
    }
  return all;
}

// Configurations are often as fast as others to the last bit: which of them is shown must not
// depend on the thread that was first.
TEST(PlanSearch, FindsTheSameWhateverItsThreads) {
  Cluster cluster = one_h200();
  cluster.gpus = 8;
  const Json asked{{"model", "llama3.2-1b"}, {"seq_length", 512}, {"mode", "none"}};
  SearchSpace space = space_of(asked, cluster, 64);
  space.axes.push_back({"lr", {1e-3, 2e-3, 3e-3, 4e-3}});  // as fast, and far from each other
  space.threads = 1;
  const std::vector<Json> alone = options_of(search(space, cluster, 5));
  ASSERT_GT(alone.size(), 10U);
  for (const int64_t threads : {2, 3, 7}) {
    space.threads = threads;
    EXPECT_EQ(options_of(search(space, cluster, 5)), alone) << threads << " threads";
  }
}

// Of plans that are as fast within half a percent, and as large, the one with the fewest options.
TEST(PlanSearch, ShowsTheSimplestOfThoseThatAreAlike) {
  const Cluster cluster = one_h200();
  const Json asked{{"model", "llama3.1-8b"},
                   {"seq_length", 1024},
                   {"mode", "auto"},
                   {"task", "lm"},
                   {"lora_rank", 16}};
  const SearchResult found = search(space_of(asked, cluster, 16), cluster, 10);
  size_t with_alike = 0;
  for (const Candidate& candidate : found.fitting) {
    with_alike += candidate.alike.empty() ? 0 : 1;
    for (const ExperimentOptions& other : candidate.alike) {
      EXPECT_FALSE(candidate.options.parallel == "fsdp" && other.parallel == "none" &&
                   candidate.options.batch_size == other.batch_size &&
                   candidate.options.checkpointing == other.checkpointing);
      EXPECT_FALSE(candidate.options.cpu_offload && !other.cpu_offload &&
                   candidate.options.parallel == other.parallel &&
                   candidate.options.batch_size == other.batch_size &&
                   candidate.options.checkpointing == other.checkpointing);
    }
  }
  EXPECT_GT(with_alike, 0U);
  EXPECT_EQ(found.front[0].number, found.fitting[0].number);
  for (size_t i = 1; i < found.fitting.size(); ++i)
    EXPECT_LE(found.fitting[i].prediction.samples_per_s,
              found.fitting[i - 1].prediction.samples_per_s);
}

}  // namespace
}  // namespace moonshard::plan
