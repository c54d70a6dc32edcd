#include "runtime/train/step_graph.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <limits>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/privacy/clip_engine.h"
#include "runtime/privacy/layer_rules.h"
#include "runtime/profile/ledger.h"
#include "runtime/profile/memory.h"
#include "runtime/train/cuda_graph.h"
#include "runtime/train/trainer.h"

namespace moonshard::train {
namespace {

// Data whose shapes keep changing would spend more on captures than it saves.
constexpr int64_t kMostCaptures = 8;
// A capture takes as long as some ten steps. Drawn batches have three equal sizes in a row now and
// then, and the graph of them fits hardly any later one.
constexpr int64_t kWorthwhile = 10, kMostHardlyUsed = 2;

enum class Imitation { No, Works, Fails };
thread_local Imitation imitation = Imitation::No;

bool is_imitated() {
  return imitation != Imitation::No;
}

class ImitatedGraph : public CudaGraph {
 public:
  void begin() override {}
  std::string end() override { return imitation == Imitation::Fails ? "as the test wanted" : ""; }
  void launch() override {}
};

std::array<at::Tensor Batch::*, 8> fields() {
  return {&Batch::input_ids, &Batch::attention_mask, &Batch::labels,  &Batch::inputs,
          &Batch::targets,   &Batch::timesteps,      &Batch::counted, &Batch::words};
}

std::vector<int64_t> shapes_of(const std::vector<Batch>& batches) {
  std::vector<int64_t> key;
  for (const Batch& batch : batches) {
    for (const auto field : fields()) {
      const at::Tensor& tensor = batch.*field;
      key.push_back(tensor.defined() ? tensor.dim() : -1);
      if (!tensor.defined()) continue;
      key.push_back(static_cast<int64_t>(tensor.scalar_type()));
      key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
    }
  }
  return key;
}

bool is_on(const std::vector<Batch>& batches, c10::DeviceType type) {
  for (const Batch& batch : batches)
    for (const auto field : fields())
      if ((batch.*field).defined() && (batch.*field).device().type() != type) return false;
  return true;
}

// Addresses and numbers that kernels were given: a parameter that lies elsewhere, or is not trained
// any more, is not the graph's. Where the wrapper holds parts, whole values are made in the step.
std::vector<int64_t> places_of(const models::Model& model, const StepGraph::Parameters& updated,
                               double bound) {
  std::vector<int64_t> key{std::bit_cast<int64_t>(bound)};
  const auto add_place = [&](const models::Parameter& parameter) {
    key.push_back(reinterpret_cast<int64_t>(parameter.value.const_data_ptr()));
    key.push_back(static_cast<int64_t>(parameter.value.scalar_type()));
  };
  for (const auto& parameter : model.parameters()) key.push_back(parameter->trainable ? 1 : 0);
  for (const auto& part : updated) add_place(*part);
  return key;
}

std::string first_line(const std::string& text) {
  return text.substr(0, std::min<size_t>(text.find('\n'), 300));
}

std::string foreign_layer(const models::Model& model) {
  for (const auto& layer : model.layers())
    if (layer->trainable() && !privacy::has_built_in_rule(*layer)) return layer->name;
  return "";
}

}  // namespace

ImitatedGraphs::ImitatedGraphs(bool fails) {
  imitation = fails ? Imitation::Fails : Imitation::Works;
}

ImitatedGraphs::~ImitatedGraphs() {
  imitation = Imitation::No;
}

// In this order: tensors in the graph's memory go before the graph.
struct StepGraph::Captured {
  Key shapes, places;
  std::unique_ptr<CudaGraph> graph;
  std::vector<Batch> inputs;
  Outputs outputs;
  int64_t working_bytes = 0;
};

int64_t StepGraph::Outputs::gradient_bytes() const {
  int64_t bytes = 0;
  for (const Gradient& gradient : gradients)
    for (const at::Tensor* part : {&gradient.grad, &gradient.rows})
      if (part->defined()) bytes += static_cast<int64_t>(part->nbytes());
  return bytes;
}

StepGraph::StepGraph(c10::Device device, std::string obstacle, bool by_itself)
    : device_(device),
      obstacle_(std::move(obstacle)),
      by_itself_(by_itself),
      waits_(by_itself),
      eager_ms_(std::numeric_limits<double>::infinity()),
      replay_ms_(eager_ms_) {
  if (obstacle_.empty() && !is_imitated()) obstacle_ = graph_plugin().absence;
}

StepGraph::~StepGraph() = default;

bool StepGraph::memory_history_is_recorded() {
  return !is_imitated() && graph_plugin().absence.empty() && graph_plugin().history_is_recorded();
}

void StepGraph::say(const std::string& what) {
  if (waits_) return;
  if (std::find(said_.begin(), said_.end(), what) != said_.end()) return;
  said_.push_back(what);
  std::fprintf(stderr, "moonshard: compile: %s\n", what.c_str());
}

void StepGraph::observe(const Observed& step) {
  if (waits_) {
    decide(step);
  } else if (tries_) {
    time_replay(step);
  }
}

void StepGraph::decide(const Observed& step) {
  if (++observed_steps_ == 1) return;
  if (step.tokens != eager_tokens_) eager_ms_ = std::numeric_limits<double>::infinity();
  eager_tokens_ = step.tokens;
  eager_ms_ = std::min(eager_ms_, step.ms);
  const Verdict verdict = StepGraph::verdict(step.host_share, step.has_room);
  if (verdict != Verdict::No) ++tried_steps_;
  if (verdict == Verdict::Yes) ++bound_steps_;
  const int64_t others = observed_steps_ - 1 - bound_steps_;
  if (bound_steps_ < kDecidingSteps && others < kDecidingSteps) return;
  waits_ = false;
  const bool is_bound = bound_steps_ == kDecidingSteps;
  is_needed_ = is_bound || tried_steps_ >= kDecidingSteps;
  if (!is_needed_ || !obstacle_.empty()) return;
  tries_ = !is_bound;
  if (is_bound)
    say(fmt::format(
        "launching kernels takes {:.0f} % of a step: steps of equal shapes are replayed as CUDA "
        "graphs from now on (compile = no avoids it)",
        100 * std::min(1.0, step.host_share)));
}

// The first replay comes with its capture.
void StepGraph::time_replay(const Observed& step) {
  const bool is_over = ++steps_of_trial_ >= kMostStepsOfATrial;
  if (!step.replayed || timed_replays_++ == 0) {
    if (is_over) end_trial(false);
    return;
  }
  if (step.tokens != eager_tokens_) return end_trial(false);
  replay_ms_ = std::min(replay_ms_, step.ms);
  if (timed_replays_ > kTimedReplays) end_trial(is_faster(replay_ms_, eager_ms_));
}

void StepGraph::end_trial(bool is_won) {
  tries_ = false;
  if (is_won) {
    say(
        fmt::format("a step takes {:.1f} ms as a CUDA graph, {:.1f} without: steps of equal shapes "
                    "are replayed from now on (compile = no avoids it)",
                    replay_ms_, eager_ms_));
    return;
  }
  is_needed_ = false;
  drop();
}

bool StepGraph::is_possible() {
  if (!is_needed_) return false;
  if (!obstacle_.empty() && !by_itself_) say("steps run one kernel at a time: " + obstacle_);
  return obstacle_.empty();
}

void StepGraph::give_up(const std::string& obstacle) {
  drop();
  tries_ = false;
  obstacle_ = obstacle;
  say("steps run one kernel at a time: " + obstacle_);
}

StepGraph::Way StepGraph::next(const std::vector<Batch>& batches, const models::Model& model,
                               const Parameters& updated, double bound) {
  if (const std::string layer = foreign_layer(model); !layer.empty()) {
    drop();
    say("steps run one kernel at a time: the rule of layer '" + layer +
        "' comes from outside, and what it does besides launching kernels is not known");
    return Way::Eager;
  }
  if (!is_on(batches, device_.type())) {
    say("steps run one kernel at a time: the batch is not on the GPU");
    return Way::Eager;
  }
  const Key shapes = shapes_of(batches), places = places_of(model, updated, bound);
  if (captured_ != nullptr && captured_->places != places) drop();
  if (captured_ != nullptr && captured_->shapes == shapes) {
    equal_steps_ = 0;  // steps of other shapes count when they follow each other
    shapes_ = shapes;
    return is_imitated() ? Way::Capture : Way::Replay;
  }
  if (!shapes_.empty() && shapes != shapes_)
    say("a batch of another shape than the one before: such steps run one kernel at a time, until "
        "three in a row are alike");
  equal_steps_ = shapes == shapes_ && places == places_ ? equal_steps_ + 1 : 1;
  shapes_ = shapes;
  places_ = places;
  if (equal_steps_ <= kEagerSteps || waits_) return Way::Eager;
  const bool gives_way = captured_ != nullptr && replays_ < kWorthwhile;
  if (captures_ < kMostCaptures && hardly_used_ + (gives_way ? 1 : 0) <= kMostHardlyUsed)
    return Way::Capture;
  give_up(fmt::format(
      "shapes have changed so often that {} graphs were made (pad_batches gives drawn batches one "
      "shape)",
      captures_));
  return Way::Eager;
}

bool StepGraph::capture(const std::vector<Batch>& batches,
                        const std::function<Outputs(const std::vector<Batch>&)>& run) {
  if (captured_ != nullptr && captured_->shapes != shapes_) {
    if (replays_ < kWorthwhile) ++hardly_used_;
    replays_ = 0;
  }
  drop();
  ++captures_;
  const InterruptHold whole;
  auto captured = std::make_unique<Captured>();
  captured->shapes = shapes_;
  captured->places = places_;
  std::string failure;
  try {
    for (const Batch& batch : batches) {
      Batch& input = captured->inputs.emplace_back(
          batch.each([](const at::Tensor& own) { return own.clone(); }));
      input.padding = 0;  // that of one step; the graph reads which rows count from the tensor
    }
    captured->graph.reset(is_imitated() ? new ImitatedGraph : graph_plugin().make(device_.index()));
    captured->graph->begin();
    const profile::PeakSince peak(device_);
    try {
      captured->outputs = run(captured->inputs);
    } catch (const std::exception& error) {
      failure = first_line(error.what());
    } catch (...) {
      failure = "an error without words";
    }
    captured->working_bytes =
        peak.allocated_bytes() - profile::read_memory(device_).allocated_bytes;
    const std::string ended = captured->graph->end();
    if (failure.empty()) failure = ended;
  } catch (const std::exception& error) {
    failure = first_line(error.what());
  }
  if (failure.empty()) {
    captured_ = std::move(captured);
    return true;
  }
  captured.reset();
  give_up("a step could not be captured: " + failure);
  return false;
}

const StepGraph::Outputs& StepGraph::replay(const std::vector<Batch>& batches) {
  MS_ASSERT(captured_ != nullptr, "a step is replayed that was not captured");
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < batches.size(); ++i)
    for (const auto field : fields())
      if ((batches[i].*field).defined()) (captured_->inputs[i].*field).copy_(batches[i].*field);
  ++replays_;
  captured_->graph->launch();
  return captured_->outputs;
}

void StepGraph::claim_memory() const {
  if (captured_ == nullptr) return;
  for (const Gradient& gradient : captured_->outputs.gradients) {
    if (gradient.grad.defined()) profile::claim(gradient.grad, profile::Owner::Gradients);
    if (gradient.rows.defined()) profile::claim(gradient.rows, profile::Owner::EngineKept);
  }
}

void StepGraph::drop() {
  captured_.reset();
  equal_steps_ = 0;
}

int64_t StepGraph::working_bytes() const {
  return captured_ != nullptr ? captured_->working_bytes : 0;
}

std::string graph_obstacle(c10::Device device, const std::string& engine,
                           const std::string& clipping, const sharding::ShardingOptions& sharding) {
  if (!device.is_cuda() && !is_imitated())
    return "the model is on the CPU, where nothing waits for launches";
  if (clipping == "adaptive") return "clipping = adaptive moves its bound in every step";
  if (sharding::offloads_some(sharding))
    return "offload copies to the host in the middle of a step";
  if (sharding.parallel == "fsdp" && sharding.sharding == "zero2_replicated")
    return "sharding = zero2_replicated gathers between steps";
  if (sharding.norm_reduce == "sum")
    return "norm_reduce = sum exchanges norms in the middle of a step";
  for (const privacy::EngineDescription& known : privacy::engine_descriptions())
    if (known.name == engine && known.built_in) return "";
  return "engine '" + engine +
         "' comes from outside, and what it does besides launching kernels is not known";
}

}  // namespace moonshard::train
