// Where a trainer's batches come from. Ranks take turns: of N ranks each takes every N-th batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/core/batch.h"
#include "runtime/models/model_options.h"

namespace moonshard::data {

/// Examples that can be taken in any order: what samplers choose from. Hides how they are stored
/// and what a token is.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// These examples in this order, on the CPU; none makes a batch of size 0 with the others' shape.
  /// Thread-safe.
  virtual Batch batch(const std::vector<int64_t>& examples) const = 0;
  /// What was read and how, for results and messages: counts of files, documents, tokens,
  /// repairs.
  virtual Json facts() const = 0;
};

/// How the samples of a step are chosen: what an accountant must know.
struct Sampling {
  std::string sampler = "fixed";    ///< fixed | shuffled | poisson
  double rate = 0;                  ///< poisson: probability of each example to be in a step
  int64_t examples = 0;             ///< to choose from; 0 where they are unlimited
  int64_t expected_batch_size = 0;  ///< poisson: rate x examples, what sums are divided by
  std::string why_no_epsilon;       ///< empty for poisson sampling of real examples from a secret
};

/// The batch with rows of zeros behind its samples, as many as `rows` lacks, which count nowhere
/// (Batch::counted).
Batch padded(const Batch& batch, int64_t rows);

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
  /// Steps of one pass over the data; 0 where it has no end.
  virtual double steps_per_epoch() const { return 0; }
  /// What all ranks must have alike, or they would choose samples of different data, or the same
  /// sample twice: [ { name: value } ].
  virtual Json shared_facts() const = 0;
  /// Goes on as a run with that seed did. What is drawn from a secret stays so.
  virtual void use_seed(int64_t seed) = 0;
  /// What it reads, for results; null when there is nothing to say.
  virtual Json facts() const { return nullptr; }
};

/// Random batches of the right shape, a new one each step: what profiling needs, with no data set
/// to load. Step n of a seed is the same batch on every device. Ranks take turns: N ranks draw in
/// one step what one process draws in N. Such data carries no privacy claim.
class SyntheticData : public Source {
 public:
  /// Shapes come from the model's resolved options; images do not use seq_length.
  SyntheticData(const models::ModelOptions& model, int64_t batch_size, int64_t seq_length,
                int rank = 0, int world = 1);
  Batch next() override;
  int64_t position() const override { return static_cast<int64_t>(position_); }
  void go_to(int64_t position) override { position_ = static_cast<uint64_t>(position); }
  Sampling sampling() const override {
    return {"fixed", 0, 0, 0, "synthetic data: there is nobody to protect, and no epsilon"};
  }
  Json shared_facts() const override {
    return {{"batch_size", batch_size_}, {"seq_length", seq_length_}};
  }
  void use_seed(int64_t seed) override { model_.seed = seed; }

 private:
  models::ModelOptions model_;
  int64_t batch_size_, seq_length_;
  uint64_t rank_, world_;
  uint64_t position_ = 0;
};

}  // namespace moonshard::data
