// Where a trainer's batches come from. Ranks take turns: of N ranks each takes every N-th batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/core/batch.h"

namespace moonshard::data {

/// How the samples of a step are chosen: what an accountant must know.
struct Sampling {
  std::string sampler = "fixed";    ///< fixed | shuffled | poisson
  double rate = 0;                  ///< poisson: probability of each example to be in a step
  int64_t examples = 0;             ///< to choose from; 0 where they are unlimited
  int64_t expected_batch_size = 0;  ///< poisson: rate x examples, what sums are divided by
  std::string why_no_epsilon;       ///< empty for poisson sampling of real examples
};

class Source {
 public:
  virtual ~Source() = default;
  virtual Batch next() = 0;
  /// This rank's micro-batches of the next step; `grad_accum` of them, where the source does not
  /// choose how many by itself. Every rank gets as many; they may be empty.
  virtual std::vector<Batch> next_step(int64_t grad_accum) {
    std::vector<Batch> drawn;
    for (int64_t i = 0; i < grad_accum; ++i) drawn.push_back(next());
    return drawn;
  }
  /// What all ranks together have drawn so far, in batches or, where a step draws its own number,
  /// in steps. Any number of ranks can continue the sequence from there.
  virtual int64_t position() const = 0;
  virtual void go_to(int64_t position) = 0;
  virtual Sampling sampling() const = 0;
  /// What it reads, for results; null when there is nothing to say.
  virtual Json facts() const { return nullptr; }
};

}  // namespace moonshard::data
