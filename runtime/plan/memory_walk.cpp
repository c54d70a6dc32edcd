#include "runtime/plan/memory_walk.h"

#include <algorithm>
#include <utility>

#include "runtime/plan/block_walk.h"
#include "runtime/plan/fixed_memory.h"
#include "runtime/plan/gather_walk.h"
#include "runtime/plan/gradient_walk.h"
#include "runtime/plan/layer_bytes.h"
#include "runtime/plan/memory_ledger.h"
#include "runtime/plan/sum_walk.h"
#include "runtime/plan/widened_states.h"

namespace moonshard::plan {
namespace {

// What micro-batches leave for each other and for the update.
struct Step {
  const PlannedModel& model;
  const sharding::ShardingOptions& sharding;
  const MemorySituation& situation;
  MemoryLedger ledger;
  GatherWalk gathers;
  GradientWalk gradients;

  Step(const PlannedModel& planned, bool is_private, const sharding::ShardingOptions& wrapper,
       const MemorySituation& of)
      : model(planned),
        sharding(wrapper),
        situation(of),
        gathers(model, sharding, situation, ledger),
        gradients(model, is_private, sharding, situation, ledger) {}
};

class MicroBatchWalk {
 public:
  MicroBatchWalk(Step& step, const EngineWays& ways)
      : model_(step.model),
        ways_(ways),
        situation_(step.situation),
        kept_(ways.two_passes ? model_.kept_twice : model_.kept),
        rows_(static_cast<double>(situation_.samples * model_.tokens)),
        bytes_(model_, situation_.samples),
        kept_blocks_(model_, kept_, bytes_, rows_, situation_.checkpointing,
                     situation_.checkpoint_every),
        ledger_(step.ledger),
        gathers_(step.gathers),
        gradients_(step.gradients),
        units_(model_.units(step.sharding, situation_.ranks)),
        by_stretch_(units_, gathers_, gradients_),
        blocks_(model_, ways, situation_, bytes_, kept_blocks_, by_stretch_, ledger_),
        sums_(model_, ways, situation_, units_, bytes_, gathers_, gradients_, ledger_) {}

  void run() {
    ledger_.begin_phase("forward");
    gathers_.begin_forward();
    const size_t stretches = model_.num_stretches();
    add(Holder::Activations, static_cast<double>(kept_.shared));
    for (size_t i = 0; i < stretches; ++i) {
      gathers_.forward(i);
      const StretchKind kind = model_.kind_of(i);
      if (kind == StretchKind::Block) {
        // While a block that is recomputed runs, all of it is there.
        const double whole = kept_blocks_.of(i).whole;
        add(Holder::Activations, whole);
        blocks_.forward(i);
        const bool is_frozen = i < model_.first_in_backward;
        free(Holder::Activations, is_frozen ? whole : kept_blocks_.made_again(i));
      }
      if (kind == StretchKind::LastBlock) {
        add(Holder::Activations, kept_of_last());
        const double at_once = rows_ * static_cast<double>(kept_.last_block->in_forward);
        ledger_.touch(Holder::Activations, std::max(0.0, at_once - kept_of_last()));
        free(Holder::Activations, i < model_.first_in_backward ? kept_of_last() : 0);
      }
      if (kind == StretchKind::Behind)
        add(Holder::Activations, rows_ * static_cast<double>(kept_.outside));
      gathers_.forward_ended(i);
      if (i == 1) gradients_.finish();
    }
    backward(ways_.two_passes ? Pass::Norms : Pass::Only);
    if (ways_.two_passes) {
      ledger_.begin_phase("second_backward");
      backward(Pass::Sums);
    } else if (ways_.is_private) {
      ledger_.begin_phase("clipped_sum");
      sums_.all();
    }
    free(Holder::Activations, ledger_.of(Holder::Activations));
    const double stays = situation_.graph && ways_.is_private ? sums_.rows_for_update() : 0;
    free(Holder::EngineKept, std::max(0.0, ledger_.of(Holder::EngineKept) - stays));
    gathers_.end_micro_batch();
  }

 private:
  void add(Holder holder, double bytes) { ledger_.add(holder, bytes); }
  void free(Holder holder, double bytes) { ledger_.free(holder, bytes); }

  void backward(Pass pass) {
    if (pass != Pass::Sums) ledger_.begin_phase("backward");
    gathers_.begin_backward();
    const size_t stretches = model_.num_stretches();
    for (size_t i = stretches; i-- > model_.first_in_backward;) {
      gathers_.backward(i);
      const StretchKind kind = model_.kind_of(i);
      if (kind == StretchKind::Behind) {
        head_backward(pass);
      } else if (kind == StretchKind::LastBlock) {
        last_block_backward(i, pass);
      } else if (kind == StretchKind::Block) {
        blocks_.backward(i, pass);
      } else if (pass == Pass::Sums && !first_joins()) {
        end_second_pass();
        continue;
      } else {
        blocks_.launch(pass);
        first_backward(pass);
      }
      // Gradients leave as soon as they are complete, before the unit's values go. Blocks of a
      // second pass come when their sums are formed.
      if (sums_up(ways_, pass) && (pass == Pass::Only || kind != StretchKind::Block))
        by_stretch_.reduce_finished(i);
      gathers_.backward_ended(i, pass != Pass::Norms);
    }
    blocks_.launch(pass);
    ledger_.of(Holder::OutputGradients) = 0;
  }

  // Layers of the first stretch that a launch joins send the first block's before them; a table is
  // summed up by itself, and the first block's come when the pass, which has let go of all units,
  // has ended.
  bool first_joins() const { return std::ranges::any_of(ways_.before, &LayerWay::joins); }
  void end_second_pass() {
    first_backward(Pass::Sums);
    const auto &first = gathers_.units_of(0), &next = gathers_.units_of(1);
    const bool waits = !first.empty() && !next.empty() && first.front() == next.front();
    if (!waits) by_stretch_.reduce_finished(0);
    gathers_.backward_ended(0, /*last_pass=*/true);
    blocks_.launch(Pass::Sums);
    if (waits) by_stretch_.reduce_finished(0);
  }

  double kept_of_last() const {
    const int64_t rows = situation_.samples * model_.tokens;
    return static_cast<double>(kept_.last_block->kept_bytes(situation_.samples, rows)) -
           unread_input();
  }
  // Of a CPU's last block: what keys and values read is not kept where neither is trained.
  double unread_input() const {
    const std::vector<PlannedLayer>& layers = model_.last_block;
    for (size_t i = 0; i < layers.size(); ++i)
      if (layers[i].is_matrix && !layers[i].one_position && !layers[i].is_adapter &&
          is_used(layers, i))
        return 0;
    return model_.fused ? 0 : stream();
  }

  void head_backward(Pass pass) {
    add(Holder::OutputGradients, rows_ * static_cast<double>(kept_.head_working));
    layers_backward(model_.num_stretches() - 1, rows_ * static_cast<double>(kept_.outside), pass);
    // Of a single token's nothing worth counting goes on.
    add(Holder::OutputGradients, model_.has_last ? 0 : stream());
  }

  // Its layers are handed over one by one, as the head is; its stream begins in it.
  void last_block_backward(size_t stretch, Pass pass) {
    blocks_.launch(pass);
    layers_backward(stretch, kept_of_last(), pass);
    add(Holder::OutputGradients, stream());
  }
  // Gradients of all positions, beside those that are there.
  void hold_gradients(int64_t bytes_of_row, double more = 0) {
    const double wanted = rows_ * static_cast<double>(bytes_of_row) + more;
    add(Holder::OutputGradients, std::max(0.0, wanted - ledger_.of(Holder::OutputGradients)));
  }
  // The norm that keys and values read is the first of its layers.
  void reach_norm_of_last(size_t stretch, Pass pass) {
    const models::LastBlockBytes& last = *kept_.last_block;
    if (stretch == model_.first_in_backward && !model_.last_block.front().trained) return;
    // What keys and values have read is an engine's by now.
    const bool taken_over = pass == Pass::Only && ways_.is_private && !model_.fused;
    hold_gradients(last.of_norm - (pass == Pass::Norms ? 0 : last.gone), taken_over ? stream() : 0);
  }
  double stream() const { return bytes_.stream(static_cast<double>(model_.options().hidden_dim)); }

  void layers_backward(size_t stretch, double kept, Pass pass) {
    outside_ = pass == Pass::Norms ? 0 : kept;
    const std::vector<PlannedLayer>& layers = model_.layers_of(stretch);
    const std::vector<LayerWay>& ways = ways_.of_stretch(model_, stretch);
    const bool is_last_block = model_.kind_of(stretch) == StretchKind::LastBlock;
    // A CPU finds the norms of its layers one by one.
    const bool lets_go = is_last_block && pass == Pass::Norms && !model_.fused;
    for (size_t i = layers.size(); i-- > 0;) {
      const PlannedLayer& layer = layers[i];
      if (is_last_block && layer.is_matrix && !layer.one_position)
        hold_gradients(kept_.last_block->of_attention);
      if (layer.is_matrix && !layer.one_position) end_loss(layer, pass);
      if (layer.by_samples) {
        head_in_chunks(layer, ways[i], pass);
      } else if (sums_up(ways_, pass)) {
        by_stretch_.form(stretch, bytes_.gradient(layer));
      } else if (layer.is_matrix && lets_go) {
        continue;
      } else if (layer.is_matrix) {
        consume(layer, ways[i], pass);
        // The second pass needs the scores: their gradient has a place of its own, also where no
        // engine holds it.
        if (pass == Pass::Norms && !layer.trained && model_.fused)
          add(Holder::OutputGradients, bytes_.output(layer));
      } else {
        add(Holder::EngineKept, pass == Pass::Norms ? 0 : bytes_.rows(ways[i]));
      }
    }
    if (is_last_block) reach_norm_of_last(stretch, pass);
    free(Holder::OutputGradients, ledger_.of(Holder::OutputGradients));
    if (pass != Pass::Norms) free(Holder::Activations, outside_);
  }

  // A CPU's loss has ended when the head's backward begins: of what it held the scores' gradient
  // alone is left, and of what it kept nothing, unless another pass comes.
  void end_loss(const PlannedLayer& layer, Pass pass) {
    if (model_.fused || layer.by_samples || model_.options().task == "classify") return;
    const double g = bytes_.output(layer);
    free(Holder::OutputGradients, std::max(0.0, ledger_.of(Holder::OutputGradients) - g));
    if (pass == Pass::Norms) return;
    const double wide = static_cast<double>(std::max<int64_t>(4, model_.compute_bytes));
    const double kept = std::min(outside_, g / static_cast<double>(model_.compute_bytes) * wide);
    outside_ -= kept;
    free(Holder::Activations, kept);
  }

  // Beside the scores of one chunk: the sum, every sample's row, or one row after the other. Rows
  // of a weight that the table shares wait for it.
  void head_in_chunks(const PlannedLayer& layer, const LayerWay& way, Pass pass) {
    const double chunk = static_cast<double>(kept_.chunk),
                 row = way.rows_bytes / static_cast<double>(situation_.samples);
    add(Holder::OutputGradients, chunk);
    if (!layer.trained) return;
    if (sums_up(ways_, pass)) {
      // A second pass adds rows up, beside the next one's chunks; a GPU hands an only one on.
      const bool one = situation_.samples == 1, shared = sums_.is_summed(layer);
      const bool is_sum = pass == Pass::Only || (model_.fused && one && !shared);
      add(Holder::EngineTemporaries, is_sum ? 0 : row);
      if (one && !is_sum) free(Holder::OutputGradients, chunk);
      by_stretch_.form(model_.num_stretches() - 1, bytes_.gradient(layer));
      free(Holder::EngineTemporaries, is_sum ? 0 : row);
      return;
    }
    const bool waits = pass == Pass::Only ? way.kept == Kept::Rows : sums_.is_summed(layer);
    const double bytes = pass == Pass::Only || waits ? bytes_.rows(way) : row;
    add(Holder::EngineKept, bytes);
    if (!waits) free(Holder::EngineKept, bytes);
    if (pass == Pass::Norms && waits) of_head_ = bytes;
  }

  // (a, g) of a layer stay until the launch of its stretch; g of a head whose weight is the
  // table's, too, until the table's backward, as both make one norm.
  void consume(const PlannedLayer& layer, const LayerWay& way, Pass pass) {
    if (!layer.trained) return;
    const double a = pass == Pass::Norms ? 0 : bytes_.own_input(layer), g = bytes_.output(layer);
    const double both = a + g;
    // The gradient of scores takes their place; on a CPU it is that which the loss has left.
    const double taken = std::min(model_.fused ? both : a, outside_);
    outside_ -= taken;
    free(Holder::Activations, taken);
    if (!model_.fused)
      free(Holder::OutputGradients, std::min(g, ledger_.of(Holder::OutputGradients)));
    add(Holder::EngineKept, both);
    if (pass == Pass::Norms && sums_.is_summed(layer)) {
      of_head_ = both;
    } else {
      blocks_.hold({&way, both, bytes_.bias_working(layer, true)});
    }
  }

  void first_backward(Pass pass) {
    free(Holder::EngineKept, std::exchange(of_head_, 0));
    for (size_t i = model_.before.size(); i-- > 0;) {
      const PlannedLayer& layer = model_.before[i];
      if (sums_up(ways_, pass)) {
        if (!sums_.is_summed(layer)) by_stretch_.form(0, bytes_.gradient(layer));
        if (pass == Pass::Only) ledger_.touch(Holder::Gradients, bytes_.bias_working(layer, false));
      } else if (pass == Pass::Only && layer.trained) {
        const bool rows = ways_.before[i].kept == Kept::Rows;
        if (rows && sums_.is_summed(layer)) {
          // And the sum with the head's, which takes their place.
          ledger_.touch(Holder::EngineTemporaries, 2 * bytes_.rows(ways_.before[i]));
        } else {
          add(Holder::EngineKept, rows ? bytes_.rows(ways_.before[i]) : bytes_.output(layer));
        }
      }
    }
  }

  const PlannedModel& model_;
  const EngineWays& ways_;
  const MemorySituation& situation_;
  const models::ActivationBytes& kept_;
  double rows_;
  LayerBytes bytes_;
  KeptBlocks kept_blocks_;
  MemoryLedger& ledger_;
  GatherWalk& gathers_;
  GradientWalk& gradients_;
  const std::vector<PlannedUnit>& units_;
  StretchGradients by_stretch_;
  BlockWalk blocks_;
  SumWalk sums_;
  double of_head_ = 0;  ///< what waits for the table that has the head's weight
  double outside_ = 0;  ///< activations of the last layers that are still there
};

}  // namespace

MemoryPlan walk_memory(const PlannedModel& model, const StepWays& ways,
                       const sharding::ShardingOptions& sharding,
                       const MemorySituation& situation) {
  const bool is_private = ways.last.is_private;
  Step step(model, is_private, sharding, situation);
  MemoryPlan plan;
  place_fixed_memory(model, is_private, sharding, situation, step.ledger, plan);
  // Those between the first and the last add nothing.
  const int64_t count = std::min<int64_t>(situation.grad_accum, 2);
  for (int64_t i = 0; i < count; ++i) {
    const bool is_last = i + 1 == count;
    step.gradients.begin_micro_batch(is_last);
    MicroBatchWalk(step, ways.of(is_last)).run();
  }
  step.ledger.begin_phase("update");
  step.gradients.finish();
  step.ledger.touch(Holder::Rest, widened_at_end(model, is_private, sharding, situation));
  step.ledger.leave_peak(plan);
  return plan;
}

}  // namespace moonshard::plan
