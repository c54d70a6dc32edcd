#include "runtime/generate/decoding.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/profile/ledger.h"

namespace moonshard::generate {
namespace {

// Before a capture: steps in which libraries make their handles and one-time choices.
constexpr int64_t kEagerSteps = 2;
// Rows of products are read in parts of 16 bytes.
constexpr int64_t kSlotUnit = 8;

int64_t slots_for(int64_t tokens) {
  return (tokens + kSlotUnit - 1) / kSlotUnit * kSlotUnit;
}

}  // namespace

Decoding::Decoding(models::CausalLm& model, const GenerateOptions& options, const Shape& shape,
                   std::string obstacle)
    : model_(model),
      options_(options),
      rows_(shape.rows),
      obstacle_(std::move(obstacle)),
      cache_(
          model.make_cache(shape.rows, slots_for(shape.longest_prompt + options.max_new_tokens))),
      sampler_(options, shape.rows, shape.device) {
  const auto whole = at::TensorOptions().dtype(at::kLong).device(shape.device);
  if (!options.stop.empty()) stops_ = at::tensor(options.stop, at::kLong).to(shape.device);
  step_ = at::zeros({1}, whole);
  last_ = at::zeros({rows_}, whole);
  output_ = at::zeros({rows_, options.max_new_tokens}, whole);
  counts_ = at::zeros({rows_}, whole);
  ended_ = at::zeros({rows_}, whole.dtype(at::kBool));
  finite_ = at::ones({}, whole.dtype(at::kBool));
}

void Decoding::begin(const std::vector<std::vector<int64_t>>& prompts,
                     const std::vector<int64_t>& numbers) {
  size_t longest = 1;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  at::Tensor ids = at::zeros({rows_, static_cast<int64_t>(longest)}, at::kLong);
  at::Tensor lengths = at::ones({rows_}, at::kLong), absent = at::zeros({rows_}, at::kBool);
  for (int64_t b = 0; b < rows_; ++b) {
    const auto& prompt = prompts[static_cast<size_t>(b)];
    std::copy(prompt.begin(), prompt.end(), ids[b].mutable_data_ptr<int64_t>());
    if (!prompt.empty()) lengths[b] = static_cast<int64_t>(prompt.size());
    absent[b] = numbers[static_cast<size_t>(b)] < 0;
  }
  sampler_.begin(numbers);
  step_.zero_();
  counts_.zero_();
  ended_.copy_(absent);
  finite_.fill_(true);
  steps_ = 0;
  const profile::OwnerScope owner(profile::Owner::Activations);
  accept(model_.prefill(ids.to(last_.device()), lengths.to(last_.device()), cache_));
  ++steps_;
}

void Decoding::accept(const at::Tensor& scores) {
  finite_.logical_and_(scores.amax(-1).isfinite().logical_or_(ended_).all());
  const at::Tensor next = sampler_.choose(scores, step_).clamp_(0, scores.size(-1) - 1);
  last_.copy_(next);
  output_.index_copy_(1, step_, next.unsqueeze(1));
  counts_.add_(ended_.logical_not());
  if (stops_.defined()) ended_.logical_or_(next.unsqueeze(1).eq(stops_).any(1));
  step_.add_(1);
}

void Decoding::decode_and_accept() {
  accept(model_.decode(last_, cache_));
}

void Decoding::advance() {
  throw_if_interrupted();
  const profile::OwnerScope owner(profile::Owner::Activations);
  if (graph_ == nullptr && obstacle_.empty() && eager_steps_ >= kEagerSteps) capture();
  if (graph_ != nullptr) {
    graph_->launch();
  } else {
    decode_and_accept();
    ++eager_steps_;
  }
  ++steps_;
}

// A failed capture has computed nothing: the step runs eagerly, and so do all behind it.
void Decoding::capture() {
  const InterruptHold whole;
  try {
    std::unique_ptr<train::CudaGraph> graph(train::graph_plugin().make(last_.device().index()));
    graph->begin();
    try {
      decode_and_accept();
    } catch (const std::exception& error) {
      obstacle_ = error.what();
    }
    const std::string ended = graph->end();
    if (obstacle_.empty()) obstacle_ = ended;
    if (obstacle_.empty()) graph_ = std::move(graph);
  } catch (const std::exception& error) {
    obstacle_ = error.what();
  }
  obstacle_ = obstacle_.substr(0, std::min<size_t>(obstacle_.find('\n'), 300));
}

bool Decoding::all_ended() const {
  const at::Tensor both = at::stack({ended_.all(), finite_}).to(c10::kCPU);
  MS_CHECK(both[1].item<bool>(),
           "generate: expected finite scores of tokens, got others; the weights are not finite, or "
           "too large for the compute dtype");
  return both[0].item<bool>();
}

at::Tensor Decoding::tokens() const {
  return output_.narrow(1, 0, steps_).to(c10::kCPU);
}

}  // namespace moonshard::generate
