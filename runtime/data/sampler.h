// Which examples a step takes. A sampler is a function of the step alone: every rank computes the
// whole step's examples and takes its share, so that any number of ranks trains on the same ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/random_words.h"
#include "runtime/data/source.h"

namespace moonshard::data {

struct SamplerOptions {
  std::string sampler = "fixed";
  int64_t examples = 0;    ///< how many there are
  int64_t batch_size = 0;  ///< of a step over all ranks; poisson: the expected one
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Examples of step 0, 1, …, in the order in which they are used.
  virtual std::vector<int64_t> examples_of(int64_t step) = 0;
  virtual Sampling sampling() const = 0;
};

/// fixed: in the order of the data, from the start again at its end. shuffled: every epoch in a
/// new order. poisson: Poisson subsampling, each example independently with probability
/// batch_size / examples.
/// Throws UsageError for an unknown name, no examples, and a poisson batch that is expected to be
/// larger than the data.
std::unique_ptr<Sampler> make_sampler(const SamplerOptions& options, const RandomWords& words);

}  // namespace moonshard::data
