#include "runtime/generate/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/generate/decoding.h"
#include "runtime/models/causal_lm.h"
#include "runtime/profile/ledger.h"
#include "runtime/train/forward_only.h"

namespace moonshard::generate {
namespace {

// How often the host looks whether every row has ended: each look waits for the device.
constexpr int64_t kLookEvery = 16;

models::CausalLm& causal_lm_of(models::Model& model) {
  auto* found = dynamic_cast<models::CausalLm*>(&model);
  MS_CHECK(found != nullptr && model.options().task == "lm",
           "generate: expected a model of text with task lm, got '{}' with task {}",
           model.options().model, model.options().task);
  return *found;
}

void check_prompts(models::Model& model, const std::vector<Tokens>& prompts,
                   const GenerateOptions& options) {
  MS_CHECK(!prompts.empty(), "generate: expected at least one prompt, got none");
  const int64_t vocab = model.options().vocab_size;
  for (size_t i = 0; i < prompts.size(); ++i) {
    MS_CHECK(
        !prompts[i].empty(),
        "generate: prompt {}: expected at least one token, got none; begin with the token that "
        "begins a text",
        i + 1);
    for (const int64_t id : prompts[i])
      MS_CHECK(id >= 0 && id < vocab, "generate: prompt {}: expected ids from 0 to {}, got {}",
               i + 1, vocab - 1, id);
    const int64_t longest = causal_lm_of(model).longest_text();
    const int64_t tokens = static_cast<int64_t>(prompts[i].size()) + options.max_new_tokens;
    MS_CHECK(longest == 0 || tokens <= longest,
             "generate: prompt {}: expected at most {} tokens, the positions of model '{}', got {} "
             "and max_new_tokens = {}",
             i + 1, longest, model.options().model, prompts[i].size(), options.max_new_tokens);
  }
  for (const int64_t id : options.stop)
    MS_CHECK(id >= 0 && id < vocab, "generate: option 'stop': expected ids from 0 to {}, got {}",
             vocab - 1, id);
}

// While it lives, parameters of linear layers and embeddings are in the compute dtype: a step of
// one token would otherwise spend most of its time on casting all weights. Norms keep theirs: they
// round after their own arithmetic.
class ComputeWeights {
 public:
  explicit ComputeWeights(models::Model& model) {
    const profile::OwnerScope cast(profile::Owner::CastParameters);
    for (const auto& layer : model.layers()) {
      const at::ScalarType type = layer->compute_type();
      if (layer->kind != models::kinds::kLinear && layer->kind != models::kinds::kEmbedding)
        continue;
      for (models::Parameter* parameter : {layer->weight, layer->bias}) {
        if (parameter == nullptr || parameter->value.scalar_type() == type) continue;
        if (!kept_.emplace(parameter, parameter->value).second) continue;
        parameter->value = parameter->value.to(type);
      }
    }
  }
  ~ComputeWeights() {
    for (auto& [parameter, value] : kept_) parameter->value = value;
  }
  ComputeWeights(const ComputeWeights&) = delete;
  ComputeWeights& operator=(const ComputeWeights&) = delete;

 private:
  std::map<models::Parameter*, at::Tensor> kept_;
};

// The ranks that share the prompts; one by itself agrees with itself.
class Ranks {
 public:
  Ranks() = default;
  explicit Ranks(train::Trainer& trainer)
      : trainer_(&trainer), rank_(trainer.world().rank()), size_(trainer.world().size()) {}

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  /// Before each pass through the model.
  void begin_pass() const {
    if (trainer_ != nullptr) trainer_->parallel().begin_micro_batch(/*last=*/false);
  }
  /// Whether all say yes: ranks whose units are gathered run passes together, to the last.
  bool all(bool own) const {
    at::Tensor vote = at::tensor({own ? 0.0 : 1.0}, at::kDouble);
    add_up(vote);
    return vote.item<double>() == 0;
  }
  /// The sum over ranks, in place.
  void add_up(at::Tensor& table) const {
    if (size_ == 1) return;
    trainer_->world().group("statistics", c10::kCPU)->all_reduce(table, "generation").wait();
  }

 private:
  train::Trainer* trainer_ = nullptr;
  int64_t rank_ = 0, size_ = 1;
};

class Stopwatch {
 public:
  double seconds() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(begin_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Tells of the tokens of the newest step.
void report_step(const Decoding& decoding, const std::vector<int64_t>& numbers,
                 const std::vector<int64_t>& stops, const OnToken& on_token) {
  const at::Tensor tokens = decoding.tokens(), counts = decoding.counts();
  for (size_t b = 0; b < numbers.size(); ++b) {
    const auto row = static_cast<int64_t>(b);
    if (numbers[b] < 0 || counts[row].item<int64_t>() < decoding.steps()) continue;
    const int64_t token = tokens[row][decoding.steps() - 1].item<int64_t>();
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) continue;
    on_token(static_cast<size_t>(numbers[b]), token);
  }
}

// Results of all prompts as one table, so that ranks can add theirs up: a row is in one rank's
// table, and 0 in the others'. Column 0: how many tokens; 1: whether a stop token ended it.
constexpr int64_t kResultColumns = 2;

void note_results(at::Tensor& table, const Decoding& decoding,
                  const std::vector<int64_t>& numbers) {
  const at::Tensor tokens = decoding.tokens(), counts = decoding.counts(), ended = decoding.ended();
  for (size_t b = 0; b < numbers.size(); ++b) {
    if (numbers[b] < 0) continue;
    const auto row = static_cast<int64_t>(b);
    at::Tensor result = table[numbers[b]];
    result[0] = counts[row];
    result[1] = ended[row];
    result.narrow(0, kResultColumns, decoding.steps()).copy_(tokens[row]);
  }
}

void list_results(const at::Tensor& table, Generated& result) {
  for (int64_t i = 0; i < table.size(0); ++i) {
    const int64_t* row = table[i].const_data_ptr<int64_t>();
    result.new_tokens += row[0];
    const bool stopped = row[1] != 0;
    result.ended.emplace_back(stopped ? "stop" : "length");
    const int64_t* first = row + kResultColumns;
    result.tokens.emplace_back(first, first + row[0] - (stopped ? 1 : 0));
  }
}

// Why a step of this model cannot be a graph.
std::string graph_obstacle(models::Model& model, const GenerateOptions& options, bool in_parts) {
  if (options.graph == "no") return "graph = no";
  if (model.options().device != "cuda") return "the model is on the CPU";
  if (in_parts) return "units are gathered over ranks, which is not captured";
  return train::graph_plugin().absence;
}

Generated run(models::Model& model, const std::vector<Tokens>& prompts,
              const GenerateOptions& options, const OnToken& on_token, const Ranks& ranks,
              bool in_parts) {
  const at::NoGradGuard no_grad;
  std::optional<ComputeWeights> weights;
  if (!in_parts) weights.emplace(model);
  const auto count = static_cast<int64_t>(prompts.size());
  Decoding::Shape shape;
  shape.rows = std::min(options.batch_size, (count + ranks.size() - 1) / ranks.size());
  shape.device = resolve_device(model.options().device);
  for (const Tokens& prompt : prompts)
    shape.longest_prompt = std::max(shape.longest_prompt, static_cast<int64_t>(prompt.size()));
  Decoding decoding(causal_lm_of(model), options, shape, graph_obstacle(model, options, in_parts));
  Generated result;
  at::Tensor table = at::zeros({count, kResultColumns + options.max_new_tokens}, at::kLong);
  Stopwatch watch;
  for (int64_t first = 0; first < count; first += shape.rows * ranks.size()) {
    std::vector<Tokens> rows;
    std::vector<int64_t> numbers;
    for (int64_t b = 0; b < shape.rows; ++b) {
      const int64_t number = first + b * ranks.size() + ranks.rank();
      numbers.push_back(number < count ? number : -1);
      rows.push_back(number < count ? prompts[static_cast<size_t>(number)] : Tokens());
    }
    watch.seconds();
    ranks.begin_pass();
    decoding.begin(rows, numbers);
    decoding.wait();
    result.prefill_seconds += watch.seconds();
    if (on_token) report_step(decoding, numbers, options.stop, on_token);
    while (decoding.steps() < options.max_new_tokens) {
      const bool looks = decoding.steps() % kLookEvery == 0 || on_token;
      if (looks && ranks.all(decoding.all_ended())) break;
      ranks.begin_pass();
      decoding.advance();
      if (on_token) report_step(decoding, numbers, options.stop, on_token);
    }
    decoding.all_ended();  // or scores that were not finite
    result.decode_seconds += watch.seconds();
    note_results(table, decoding, numbers);
  }
  ranks.add_up(table);
  list_results(table, result);
  for (const Tokens& prompt : prompts) result.prompt_tokens += static_cast<int64_t>(prompt.size());
  result.cache_bytes = decoding.cache_bytes();
  result.graph = decoding.graph().empty() ? "too few tokens" : decoding.graph();
  return result;
}

// Ranks that were given other prompts would run passes of other shapes, or wait forever.
void compare_prompts(const train::Trainer& trainer, const std::vector<Tokens>& prompts,
                     const GenerateOptions& options) {
  if (trainer.world().size() == 1) return;
  int64_t tokens = 0, sum = 0;
  for (const Tokens& prompt : prompts) {
    tokens += static_cast<int64_t>(prompt.size());
    for (const int64_t id : prompt) sum = (sum * 31 + id) % 1'000'000'007;
  }
  const at::Tensor own = at::tensor({static_cast<int64_t>(prompts.size()), tokens, sum,
                                     options.max_new_tokens, options.batch_size},
                                    at::kLong);
  const at::Tensor all = trainer.of_all_ranks(own);
  for (int64_t rank = 1; rank < all.size(0); ++rank)
    MS_CHECK(all[rank].equal(all[0]),
             "generate: expected the same prompts and options on all ranks, got others on rank {} "
             "than on rank 0",
             rank);
}

}  // namespace

Generated generate(models::Model& model, const std::vector<Tokens>& prompts,
                   const GenerateOptions& options, const OnToken& on_token) {
  check(options);
  causal_lm_of(model);
  check_prompts(model, prompts, options);
  return run(model, prompts, options, on_token, Ranks(), /*in_parts=*/false);
}

Generated generate(train::Trainer& trainer, const std::vector<Tokens>& prompts,
                   const GenerateOptions& options, const OnToken& on_token) {
  check(options);
  causal_lm_of(trainer.model());
  check_prompts(trainer.model(), prompts, options);
  MS_CHECK(
      trainer.half_done().empty(),
      "generate: expected whole weights, got those of a {} that failed on its way; resume from "
      "a good checkpoint first",
      trainer.half_done());
  MS_CHECK(!trainer.world().is_fake(),
           "generate: expected ranks that compute, got a world that models the others; generate "
           "with world = real");
  compare_prompts(trainer, prompts, options);
  const bool in_parts = trainer.sharding_options().parallel == "fsdp";
  const train::ForwardOnly pass(trainer.parallel());
  return run(trainer.model(), prompts, options, on_token, Ranks(trainer), in_parts);
}

}  // namespace moonshard::generate
