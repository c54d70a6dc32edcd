#include "runtime/generate/sampling.h"

#include <ATen/ATen.h>

#include "kernels/counter_noise/counter_noise.h"
#include "kernels/nucleus/nucleus.h"
#include "runtime/base/check.h"
#include "runtime/core/random_words.h"

namespace moonshard::generate {
namespace {

constexpr double kWhole = 1 << 30;
constexpr uint32_t kPurposeTokens = kernels::kPurposeData | 0x20000002u;

// [B, V] int32: the probability of each token in parts of 2^30, the most probable one at least 1.
at::Tensor parts_of(const at::Tensor& scores, double temperature) {
  const auto wide = scores.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor shares = at::softmax(scores.to(wide) / temperature, -1);
  return (shares * kWhole).round_().to(at::kInt);
}

at::Tensor without_small(const at::Tensor& parts, const at::Tensor& smallest) {
  return parts.masked_fill(parts < smallest, 0);
}

}  // namespace

const OptionSchema& generate_schema() {
  static const OptionSchema schema("generate", add_generate_options<GenerateOptions>);
  return schema;
}

void check(const GenerateOptions& options) {
  MS_CHECK(options.top_p > 0, "generate: option 'top_p': expected above 0 and up to 1, got {}",
           options.top_p);
  // A positive one so small that scores overflow.
  MS_CHECK(options.temperature == 0 || options.temperature >= 1e-4,
           "generate: option 'temperature': expected 0 (the most probable token) or at least "
           "0.0001, got {}",
           options.temperature);
}

Sampler::Sampler(const GenerateOptions& options, int64_t rows, c10::Device device)
    : options_(options) {
  if (is_greedy()) return;
  draws_ = at::zeros({rows, options.max_new_tokens},
                     at::TensorOptions().dtype(at::kDouble).device(device));
}

void Sampler::begin(const std::vector<int64_t>& numbers) {
  if (is_greedy()) return;
  const RandomWords words(static_cast<uint64_t>(options_.seed));
  at::Tensor table = at::empty(draws_.sizes(), at::kDouble);
  double* next = table.mutable_data_ptr<double>();
  for (const int64_t number : numbers) {
    for (int64_t step = 0; step < options_.max_new_tokens; ++step) {
      const uint64_t word =
          words.word(static_cast<uint32_t>(step), kPurposeTokens, static_cast<uint64_t>(number));
      *next++ = static_cast<double>(word >> 32) * 0x1p-32;
    }
  }
  draws_.copy_(table);
}

at::Tensor nucleus(const at::Tensor& parts, double share) {
  return without_small(parts, kernels::nucleus_border(parts, share));
}

at::Tensor Sampler::choose(const at::Tensor& scores, const at::Tensor& step) const {
  if (is_greedy()) return scores.argmax(-1);
  at::Tensor parts = parts_of(scores, options_.temperature);
  if (options_.top_k > 0 && options_.top_k < parts.size(-1)) {
    const at::Tensor largest = std::get<0>(parts.topk(options_.top_k, -1));
    parts = without_small(parts, largest.narrow(-1, options_.top_k - 1, 1));
  }
  if (options_.top_p < 1) parts = nucleus(parts, options_.top_p);
  const at::Tensor upto = parts.cumsum(-1, at::kLong);
  const at::Tensor whole = upto.narrow(-1, upto.size(-1) - 1, 1).to(at::kDouble);
  const at::Tensor target = (draws_.index_select(1, step) * whole).floor_().to(at::kLong);
  return (upto <= target).sum(-1);
}

}  // namespace moonshard::generate
