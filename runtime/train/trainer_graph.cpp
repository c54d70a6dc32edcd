// The part of the training step that can be a CUDA graph: what of a step goes into it, and what
// becomes of its results. When there is one is for step_graph.h to say.
#include <algorithm>

#include <ATen/ATen.h>

#include "kernels/common/choice.h"
#include "runtime/sharding/settle_rows.h"
#include "runtime/train/step_finish.h"
#include "runtime/train/step_graph.h"
#include "runtime/train/step_watch.h"
#include "runtime/train/trainer.h"

namespace moonshard::train {

// Of this rank. Who looks into a step needs one whose kernels are launched, and whose memory is
// taken, as it runs.
int64_t Trainer::possible_way(const std::vector<Batch>& drawn) {
  const auto eager = static_cast<int64_t>(StepGraph::Way::Eager);
  if (graph_ == nullptr || !graph_->is_possible() || gradient_observer_ || record_layers_ ||
      watch_->is_recording() || parts_.hooks != nullptr || StepGraph::memory_history_is_recorded())
    return eager;
  const bool is_empty =
      std::any_of(drawn.begin(), drawn.end(), [](const Batch& batch) { return batch.size() == 0; });
  if (is_empty || !parallel_->is_current()) return eager;
  const StepGraph::Way way = graph_->next(drawn, model(), parallel_->updated(), clipping_->bound());
  return engine_->tries_plans() ? eager : static_cast<int64_t>(way);
}

void Trainer::drop_graph() {
  if (graph_ != nullptr) graph_->drop();
}

bool Trainer::has_room_for_graph(const profile::MemoryReading& memory) const {
  const auto all = static_cast<int64_t>(kernels::memory_around(parts_.model->seam().anchor));
  int64_t gradients = 0;
  for (const auto& part : parallel_->updated())
    if (part->trainable) gradients += part->value.numel() * 4;
  return StepGraph::has_room(memory.max_allocated_bytes, memory.allocated_bytes, gradients, all);
}

// All ranks see the same: the slowest host's share and step, and the fullest device, or whatever
// stands in the way of one of them. So all come to the same decisions; that one of them still waits
// for one the counts have told.
void Trainer::observe_for_graph(double host_share, const StepProgress& progress) {
  if (graph_ == nullptr || !statistics_.counts().awaits_decision) return;
  const StepReport& report = progress.report;
  const bool can_be = graph_->obstacle().empty() && has_room_for_graph(report.memory);
  const at::Tensor all =
      statistics_.of_all(at::tensor({host_share, can_be ? 1.0 : 0.0, report.time_ms}, at::kDouble));
  const auto of_all = [&](int64_t which) { return all.select(1, which); };
  graph_->observe({of_all(0).max().item<double>(), of_all(1).min().item<double>() > 0,
                   of_all(2).max().item<double>(), report.tokens, progress.replayed});
}

// The micro-batches of this step, from forward to clipped sums. False when they are still to be
// run: nothing has happened then.
//
// Note: ranks capture together and replay together. Collectives of one step are either part of a
// graph on every rank or on none: NCCL asks for that. The exchange of counts has therefore found
// the way that all of them can go; a rank whose graph would still fit captures again with the
// others. So graphs that are replayed together were captured together, with the counts of that step
// (ClipEngine::begin).
bool Trainer::run_graph(const std::vector<Batch>& drawn, profile::PhaseTimer& timer,
                        StepProgress& progress) {
  const auto way = static_cast<StepGraph::Way>(statistics_.counts().way);
  if (way == StepGraph::Way::Eager) return false;
  std::vector<Batch> batches;
  for (const Batch& batch : drawn) {
    batches.push_back(model().prepare(batch, model_draws_, step_, first_sample(progress)));
    progress.samples += batch.samples();
  }
  timer.begin("graph");
  if (way == StepGraph::Way::Capture && !capture_graph(batches, progress)) {
    progress.samples = 0;
    return false;
  }
  const StepGraph::Outputs& made = graph_->replay(batches);
  parallel_->watch_replay();
  progress.replayed = true;
  progress.replayed_gradients = made.gradient_bytes();
  progress.replayed_traffic = made.traffic;
  progress.report.kept_bytes = made.kept_bytes;
  // The graph's own are of all rows: how many of them are samples differs from step to step.
  const auto of_samples = [&](const std::vector<at::Tensor>& of_rows) {
    std::vector<at::Tensor> list;
    for (size_t i = 0; i < of_rows.size(); ++i)
      list.push_back(of_rows[i].narrow(0, 0, batches[i].samples()));
    return list;
  };
  progress.losses = of_samples(made.losses);
  progress.norms = of_samples(made.norms);
  progress.factors = of_samples(made.factors);
  for (size_t i = 0; i < made.gradients.size(); ++i) {
    models::Parameter& part = *parallel_->updated()[i];
    part.grad = made.gradients[i].grad;
    part.rows = made.gradients[i].rows;
    part.row_factors = made.gradients[i].row_factors;
  }
  return true;
}

// Everything up to the clipped sums, in the order and by the ways of a step that is not captured.
// Gradients that it would update at once are kept: noise and optimizer are no part of the graph.
bool Trainer::capture_graph(const std::vector<Batch>& batches, StepProgress& progress) {
  const auto& updated = parallel_->updated();
  const auto run = [&](const std::vector<Batch>& inputs) {
    StepGraph::Outputs made;
    made.gradients.resize(updated.size());
    const auto take = [&](size_t i) {
      const models::Parameter& part = *updated[i];
      made.gradients[i] = {part.grad, part.rows, part.row_factors};
    };
    if (finish_->updates_early()) {
      parallel_->on_complete([&](const std::string&, const std::vector<size_t>& parts) {
        for (const size_t i : parts) take(i);
      });
    }
    StepProgress inside;
    profile::PhaseTimer clock(c10::kCPU);  // events in the stream would become part of the graph
    for (size_t i = 0; i < inputs.size(); ++i)
      pass_micro_batch(inputs[i], i, inputs.size(), clock, inside);
    parallel_->finish_gradients();
    for (size_t i = 0; i < updated.size(); ++i)
      if (updated[i]->grad.defined() || updated[i]->rows.defined()) take(i);
    made.losses = inside.losses;
    made.norms = inside.norms;
    made.factors = inside.factors;
    made.kept_bytes = inside.report.kept_bytes;
    made.traffic = parallel_->traffic();
    return made;
  };
  progress.update->close(true);
  parallel_->set_captured(true);
  bool done = graph_->capture(batches, run);
  parallel_->set_captured(false);
  progress.update->close(false);
  if (statistics_.any(!done)) {
    if (done) graph_->give_up("a step could not be captured on another rank, which says why");
    done = false;
  }
  profile::set_current_phase("graph");
  parallel_->on_complete({});
  if (!done) parallel_->abandon();
  for (const auto& part : updated) sharding::forget_gradient(*part);
  for (const auto& parameter : model().parameters()) sharding::forget_gradient(*parameter);
  return done;
}

}  // namespace moonshard::train
