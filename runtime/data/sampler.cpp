#include "runtime/data/sampler.h"

#include <cmath>
#include <numeric>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/base/check.h"

namespace moonshard::data {
namespace {

// Distinct from the other uses of a run's key: synthetic data and diffusion have their own
// purposes.
constexpr uint32_t kPurposeSampling = kernels::kPurposeData | 0x20000000u;
constexpr uint32_t kPurposeShuffle = kernels::kPurposeData | 0x20000001u;

class FixedSampler : public Sampler {
 public:
  explicit FixedSampler(const SamplerOptions& options) : options_(options) {}

  std::vector<int64_t> examples_of(int64_t step) override {
    std::vector<int64_t> chosen(static_cast<size_t>(options_.batch_size));
    for (int64_t i = 0; i < options_.batch_size; ++i)
      chosen[static_cast<size_t>(i)] = (step * options_.batch_size + i) % options_.examples;
    return chosen;
  }
  Sampling sampling() const override {
    return {"fixed", 0, options_.examples, 0,
            "sampler = fixed: batches come in the order of the data; an epsilon is valid for "
            "sampler = poisson alone"};
  }

 private:
  SamplerOptions options_;
};

class ShuffledSampler : public Sampler {
 public:
  ShuffledSampler(const SamplerOptions& options, const RandomWords& words)
      : options_(options), words_(words) {}

  std::vector<int64_t> examples_of(int64_t step) override {
    std::vector<int64_t> chosen;
    for (int64_t i = 0; i < options_.batch_size; ++i) {
      const int64_t place = step * options_.batch_size + i;
      shuffle(place / options_.examples);
      chosen.push_back(order_[static_cast<size_t>(place % options_.examples)]);
    }
    return chosen;
  }
  Sampling sampling() const override {
    return {"shuffled", 0, options_.examples, 0,
            "sampler = shuffled: an epsilon is valid for sampler = poisson alone; accounting a "
            "shuffled run as if it were one understates what it leaks"};
  }

 private:
  void shuffle(int64_t epoch) {
    if (epoch == epoch_) return;
    epoch_ = epoch;
    order_.resize(static_cast<size_t>(options_.examples));
    std::iota(order_.begin(), order_.end(), 0);
    for (size_t i = order_.size(); i > 1; --i) {
      const double u = words_.uniform(static_cast<uint32_t>(epoch), kPurposeShuffle, i);
      std::swap(order_[i - 1], order_[static_cast<size_t>(u * static_cast<double>(i))]);
    }
  }

  SamplerOptions options_;
  RandomWords words_;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;
};

class PoissonSampler : public Sampler {
 public:
  PoissonSampler(const SamplerOptions& options, const RandomWords& words)
      : options_(options),
        words_(words),
        rate_(static_cast<double>(options.batch_size) / static_cast<double>(options.examples)) {}

  // The gap to the next chosen example is geometric, so examples in between are skipped at once: a
  // step costs as many random words as it has samples, not as there are examples.
  std::vector<int64_t> examples_of(int64_t step) override {
    std::vector<int64_t> chosen;
    if (rate_ >= 1) {
      chosen.resize(static_cast<size_t>(options_.examples));
      std::iota(chosen.begin(), chosen.end(), 0);
      return chosen;
    }
    const double tails = std::log1p(-rate_);
    const auto last = static_cast<double>(options_.examples);
    double place = -1;
    for (uint64_t draw = 0;; ++draw) {
      const double u = words_.uniform(static_cast<uint32_t>(step), kPurposeSampling, draw);
      place += 1 + std::floor(std::log(u) / tails);
      if (place >= last) return chosen;
      chosen.push_back(static_cast<int64_t>(place));
    }
  }
  Sampling sampling() const override {
    // Sampling saves privacy only where nobody knows which examples a step used.
    const bool is_known = rate_ < 1 && !words_.is_secret();
    return {"poisson", rate_, options_.examples, options_.batch_size,
            is_known ? "samples are drawn from the seed: who has it knows whose they are" : ""};
  }

 private:
  SamplerOptions options_;
  RandomWords words_;
  double rate_;
};

}  // namespace

std::unique_ptr<Sampler> make_sampler(const SamplerOptions& options, const RandomWords& words) {
  MS_CHECK(options.examples > 0 && options.batch_size > 0,
           "sampler: expected examples and a batch size above 0, got {} and {}", options.examples,
           options.batch_size);
  if (options.sampler == "fixed") return std::make_unique<FixedSampler>(options);
  if (options.sampler == "shuffled") return std::make_unique<ShuffledSampler>(options, words);
  MS_CHECK(options.sampler == "poisson", "sampler: expected fixed, shuffled or poisson, got '{}'",
           options.sampler);
  MS_CHECK(options.batch_size <= options.examples,
           "sampler: expected at most {} samples per step, as many as there are examples, got {}; "
           "lower expected_batch_size, or batch_size x grad_accum x ranks",
           options.examples, options.batch_size);
  return std::make_unique<PoissonSampler>(options, words);
}

}  // namespace moonshard::data
