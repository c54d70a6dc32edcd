// Options of generation. Torch-free.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/options.h"

namespace moonshard::generate {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  double temperature = 1;
  double top_p = 1;
  int64_t top_k = 0;
  int64_t seed = 0;
  int64_t batch_size = 64;
  std::string graph = "auto";
  std::vector<int64_t> stop;  ///< ids; the caller reads them
};

template <class T>
void add_generate_options(OptionSchema& schema) {
  schema.integer<T>("max_new_tokens", &T::max_new_tokens, 1, 1e9,
                    "most tokens that are added to a prompt");
  schema.real<T>("temperature", &T::temperature, 0, 1e6,
                 "scores are divided by it before a token is drawn; 0 takes the most probable one");
  schema.real<T>("top_p", &T::top_p, 0, 1,
                 "draws among the fewest most probable tokens whose probabilities add up to this");
  schema.integer<T>("top_k", &T::top_k, 0, 1e9,
                    "draws among so many most probable tokens; 0: among all");
  schema.integer<T>("seed", &T::seed, 0, 9007199254740992.0,
                    "start of the random numbers; prompt i of the list has a stream of its own, "
                    "whatever the other prompts are");
  schema.integer<T>("batch_size", &T::batch_size, 1, 1e6,
                    "prompts that are continued together, on each rank");
  schema.yes_or_no<T>("graph", &T::graph,
                      "on a GPU: replay the step of a token as a CUDA graph; auto does so where it "
                      "can");
}

/// The options by themselves; `stop` is the caller's.
const OptionSchema& generate_schema();

/// Throws UsageError where one is out of range in a way that a schema cannot say.
void check(const GenerateOptions& options);

}  // namespace moonshard::generate
