// A batch of rows that is continued, token by token. Its tensors keep their places from batch to
// batch, so that one CUDA graph serves all of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/generate/generate_options.h"
#include "runtime/generate/sampling.h"
#include "runtime/models/causal_lm.h"
#include "runtime/train/cuda_graph.h"

namespace moonshard::generate {

class Decoding {
 public:
  struct Shape {
    int64_t rows = 0, longest_prompt = 0;
    c10::Device device = c10::kCPU;
  };
  /// `obstacle`: why the step cannot be a graph; "" when no reason is known.
  Decoding(models::CausalLm& model, const GenerateOptions& options, const Shape& shape,
           std::string obstacle);

  /// Reads the prompts [rows] and draws the first token of each. Row b has the number numbers[b];
  /// those of -1 stand in for rows that are not there, and are not continued.
  void begin(const std::vector<std::vector<int64_t>>& prompts, const std::vector<int64_t>& numbers);
  /// One token more for every row.
  void advance();
  /// Steps since begin, the first token included.
  int64_t steps() const { return steps_; }

  // ---- the host waits for these ---------------------------------------------------------------
  /// Whether every row has ended. Throws UsageError where scores were not finite.
  bool all_ended() const;
  /// Tokens of every row so far: [rows, steps]; those behind a row's count mean nothing.
  at::Tensor tokens() const;
  /// How many of them are the row's, a stop token included: [rows].
  at::Tensor counts() const { return counts_.to(c10::kCPU); }
  at::Tensor ended() const { return ended_.to(c10::kCPU); }
  void wait() const { ended_.to(c10::kCPU); }

  int64_t cache_bytes() const { return cache_.bytes(); }
  /// "yes", or why not.
  std::string graph() const { return graph_ != nullptr ? "yes" : obstacle_; }

 private:
  void accept(const at::Tensor& scores);
  void decode_and_accept();
  void capture();

  models::CausalLm& model_;
  GenerateOptions options_;
  int64_t rows_;
  std::string obstacle_;
  models::KvCache cache_;
  Sampler sampler_;
  at::Tensor stops_;   ///< [n]; undefined where there are none
  at::Tensor step_;    ///< [1] tokens that each row has been given
  at::Tensor last_;    ///< [rows] the last of them
  at::Tensor output_;  ///< [rows, max_new_tokens]
  at::Tensor counts_;  ///< [rows]
  at::Tensor ended_;   ///< [rows] bool, by a stop token
  at::Tensor finite_;  ///< [] bool, whether all scores were
  std::unique_ptr<train::CudaGraph> graph_;
  int64_t steps_ = 0, eager_steps_ = 0;
};

}  // namespace moonshard::generate
