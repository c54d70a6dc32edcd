#include "runtime/audit/experiments.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "runtime/base/interrupt.h"

namespace moonshard::audit {
namespace {

class Coins {
 public:
  explicit Coins(uint64_t seed) : generator_(seed) {}
  bool toss() { return (generator_() >> 63) != 0; }

 private:
  std::mt19937_64 generator_;
};

void add_score(Scores& scores, bool is_in, double score) {
  (is_in ? scores.in : scores.out).push_back(score);
}

// Steps alternate between even and odd rows: a step's canaries do not touch the rows of its
// neighbours' canaries. Two micro-batches a step, as with gradient accumulation.
void run_canary_steps(BenchOptions options, int64_t canaries, Coins& coins,
                      const std::shared_ptr<comm::World>& world, Experiment& projection,
                      Experiment& difference_of_steps) {
  const int64_t per_step = std::min(canaries, CanaryBench::kRows / 2);
  const int64_t steps = std::max<int64_t>(2, (canaries + per_step - 1) / per_step);
  options.expected_batch_size = std::max<int64_t>(1, per_step / 2);
  options.grad_accum = 2;
  CanaryBench bench(options, world);
  std::vector<Released> released;
  std::vector<std::vector<bool>> tosses;
  for (int64_t step = 0; step < steps; ++step) {
    throw_if_interrupted();
    std::vector<bool>& is_in = tosses.emplace_back();
    std::vector<int64_t> taken;
    for (int64_t i = 0; i < per_step; ++i) {
      is_in.push_back(coins.toss());
      if (is_in.back()) taken.push_back(2 * i + step % 2);
    }
    released.push_back(bench.step(taken));
  }
  for (size_t step = 0; step < released.size(); ++step) {
    const size_t neighbour = step + 1 < released.size() ? step + 1 : step - 1;
    const at::Tensor own = bench.project(released[step]);
    const at::Tensor apart = bench.project(difference(released[step], released[neighbour]));
    for (size_t i = 0; i < tosses[step].size(); ++i) {
      const int64_t row = static_cast<int64_t>(2 * i + step % 2);
      add_score(projection.scores, tosses[step][i], own[row].item<double>());
      add_score(difference_of_steps.scores, tosses[step][i], apart[row].item<double>());
    }
  }
}

// Row 0 is a sample that is always included, row 1 the canary. The division must be by one,
// whatever the batch size. A release whose noise halves with two samples scores 1 in `scale`; one
// without noise when the batch is empty scores 0 in `silence`, and 1 else.
void run_tiny_batches(BenchOptions options, int64_t trials, Coins& coins,
                      const std::shared_ptr<comm::World>& world, Experiment& scale,
                      Experiment& silence) {
  options.expected_batch_size = 1;
  CanaryBench bench(options, world);
  for (int64_t trial = 0; trial < trials; ++trial) {
    throw_if_interrupted();
    const bool is_in = coins.toss(), has_company = trial % 2 == 0;
    std::vector<int64_t> taken;
    if (has_company) taken.push_back(0);
    if (is_in) taken.push_back(1);
    const double size = bench.untouched_size(bench.step(taken), 2) / options.sigma;
    if (has_company) {
      add_score(scale.scores, is_in, -std::log2(std::max(size, 1e-6)));
    } else {
      add_score(silence.scores, is_in, size);
    }
  }
}

}  // namespace

std::vector<Experiment> run_experiments(BenchOptions options, const ExperimentSizes& sizes,
                                        uint64_t coin_seed, std::shared_ptr<comm::World> world) {
  std::vector<Experiment> list;
  for (const char* name : kExperiments) list.push_back({name, {}});
  Coins coins(coin_seed);
  run_canary_steps(options, sizes.canaries, coins, world, list[0], list[1]);
  options.seed += 1;  // other weights and other noise
  run_tiny_batches(options, sizes.trials, coins, world, list[2], list[3]);
  return list;
}

}  // namespace moonshard::audit
