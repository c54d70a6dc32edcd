// Batches of a dataset for one rank: the sampler's choice, split into micro-batches that fit,
// prefetched by separate threads.
#pragma once

#include <atomic>
#include <deque>
#include <future>
#include <memory>

#include "runtime/data/sampler.h"
#include "runtime/models/model_options.h"

namespace moonshard::data {

struct LoaderOptions {
  std::string sampler = "fixed";
  int64_t batch_size = 0;           ///< samples per micro-batch and rank; poisson: the most of them
  int64_t grad_accum = 1;           ///< micro-batches per step; poisson takes as many as it needs
  int64_t expected_batch_size = 0;  ///< poisson: of a step; 0: batch_size x grad_accum x ranks
  int64_t prefetch = 2;             ///< steps that are prefetched, each by a thread; 0: none
  bool skip_empty = false;          ///< a draw without samples is no step: for plain training
  bool pad_batches = false;         ///< micro-batches of batch_size rows, filled up (data::padded)
};

class DatasetSource : public Source {
 public:
  DatasetSource(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options,
                const RandomWords& words, c10::Device device, int rank = 0, int world = 1);
  ~DatasetSource() override;

  /// Of fixed and shuffled samplers the next step's batch where a step has one.
  Batch next() override;
  std::vector<Batch> next_step(int64_t grad_accum) override;
  int64_t position() const override { return position_; }
  void go_to(int64_t position) override;
  Sampling sampling() const override { return sampler_->sampling(); }
  double steps_per_epoch() const override;
  Json shared_facts() const override;
  void use_seed(int64_t seed) override;
  Json facts() const override;
  /// Time that threads spent on fetching so far, whether or not a step had to wait for it.
  double fetching_ms() const { return static_cast<double>(fetching_us_) / 1000; }

 private:
  struct Fetched {
    std::vector<Batch> batches;  ///< of this rank
    int64_t samples = 0;         ///< of all ranks
  };
  void draw_from(const RandomWords& words);
  std::vector<int64_t> examples_at(int64_t position);
  Fetched fetch(const std::vector<int64_t>& chosen);
  Fetched take();
  void fetch_ahead();
  void forget_ahead();

  std::shared_ptr<const Dataset> dataset_;
  LoaderOptions options_;
  c10::Device device_;
  int64_t rank_, world_;
  std::unique_ptr<Sampler> sampler_;
  bool is_secret_ = false;
  uint64_t choice_ = 0;   ///< names the words that the sampler draws from
  int64_t stride_;        ///< of the position, in a step
  int64_t position_ = 0;  ///< poisson: steps; else micro-batches of all ranks
  std::deque<std::future<Fetched>> ahead_;
  std::atomic<int64_t> fetching_us_{0};
};

}  // namespace moonshard::data
