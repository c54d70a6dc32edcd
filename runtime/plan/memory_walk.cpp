#include "runtime/plan/memory_walk.h"

#include <algorithm>
#include <utility>

#include "runtime/plan/block_groups.h"
#include "runtime/plan/fixed_memory.h"
#include "runtime/plan/gather_walk.h"
#include "runtime/plan/gradient_walk.h"
#include "runtime/plan/layer_bytes.h"
#include "runtime/plan/memory_ledger.h"
#include "runtime/plan/sum_walk.h"

namespace moonshard::plan {
namespace {

class Walk {
 public:
  Walk(const PlannedModel& model, const EngineWays& ways, const sharding::ShardingOptions& sharding,
       const MemorySituation& situation)
      : model_(model),
        ways_(ways),
        sharding_(sharding),
        situation_(situation),
        units_(model.units(sharding, situation.ranks)),
        groups_(block_groups(model)),
        kept_(ways.two_passes ? model.kept_twice : model.kept),
        rows_(static_cast<double>(situation.samples * model.tokens)),
        s_(static_cast<double>(model.compute_bytes)),
        bytes_(model, situation.samples),
        kept_blocks_(kept_, rows_, situation.checkpointing, situation.checkpoint_every),
        again_(makes_product_again(model, groups_)),
        gated_(std::ranges::any_of(model.block, &PlannedLayer::one_position)),
        gathers_(model, sharding, situation, ledger_),
        gradients_(model, ways.is_private, sharding, situation, ledger_),
        sums_(model, ways, situation, units_, bytes_, gathers_, gradients_, ledger_) {}

  MemoryPlan run() {
    place_fixed_memory(model_, ways_.is_private, sharding_, situation_, ledger_, plan_);
    const int64_t count = std::min<int64_t>(situation_.grad_accum, 2);
    for (int64_t i = 0; i < count; ++i) {
      gradients_.begin_micro_batch(i + 1 == count);
      micro_batch();
    }
    ledger_.begin_phase("update");
    gradients_.finish();
    ledger_.leave_peak(plan_);
    return plan_;
  }

 private:
  void add(Holder holder, double bytes) { ledger_.add(holder, bytes); }
  void free(Holder holder, double bytes) { ledger_.free(holder, bytes); }

  // ---- the passes ------------------------------------------------------------------------------
  void micro_batch() {
    ledger_.begin_phase("forward");
    gathers_.begin_forward();
    const size_t stretches = model_.num_stretches();
    add(Holder::Activations, static_cast<double>(kept_.shared));
    for (size_t i = 0; i < stretches; ++i) {
      gathers_.forward(i);
      if (i > 0 && i + 1 < stretches) {
        // While a block that is recomputed runs, all of it is there.
        add(Holder::Activations, kept_blocks_.whole());
        const bool is_frozen = i < model_.first_in_backward;
        free(Holder::Activations,
             is_frozen ? kept_blocks_.whole() : kept_blocks_.made_again(i - 1));
      }
      if (i + 1 == stretches) add(Holder::Activations, rows_ * static_cast<double>(kept_.outside));
      gathers_.forward_ended(i);
      if (i == 1) gradients_.finish();
    }
    backward(/*pass=*/ways_.two_passes ? 1 : 0);
    if (ways_.two_passes) {
      ledger_.begin_phase("second_backward");
      backward(2);
    } else if (ways_.is_private) {
      ledger_.begin_phase("clipped_sum");
      sums_.all();
    }
    free(Holder::Activations, ledger_.of(Holder::Activations));
    const double stays = situation_.graph && ways_.is_private ? sums_.rows_for_update() : 0;
    free(Holder::EngineKept, std::max(0.0, ledger_.of(Holder::EngineKept) - stays));
    gathers_.end_micro_batch();
  }

  // pass 0: the only one; 1: norms alone, activations stay; 2: sums.
  void backward(int pass) {
    if (pass < 2) ledger_.begin_phase("backward");
    gathers_.begin_backward();
    const size_t stretches = model_.num_stretches();
    for (size_t i = stretches; i-- > model_.first_in_backward;) {
      gathers_.backward(i);
      if (i + 1 == stretches) {
        head_backward(pass);
      } else if (i > 0) {
        block_backward(i, pass);
      } else if (pass == 2 && !first_joins()) {
        end_second_pass();
        continue;
      } else {
        launch(pass);
        first_backward(pass);
      }
      // Gradients leave as soon as they are complete, before the unit's values go. Blocks of a
      // second pass come when their sums are formed.
      if (sums_in_backward(pass) && (pass == 0 || i == 0 || i + 1 == stretches)) reduce_finished(i);
      gathers_.backward_ended(i, pass != 1);
    }
    launch(pass);
    ledger_.of(Holder::OutputGradients) = 0;
  }

  // Layers of the first stretch that a launch joins send the first block's before them; a table is
  // summed up by itself, and the first block's come when the pass, which has let go of all units,
  // has ended.
  bool first_joins() const { return std::ranges::any_of(ways_.before, &LayerWay::joins); }
  void end_second_pass() {
    first_backward(2);
    const auto &first = gathers_.units_of(0), &next = gathers_.units_of(1);
    const bool waits = !first.empty() && !next.empty() && first.front() == next.front();
    if (!waits) reduce_finished(0);
    gathers_.backward_ended(0, /*last_pass=*/true);
    sum_joined();
    if (waits) reduce_finished(0);
  }

  bool sums_in_backward(int pass) const { return !ways_.is_private || pass == 2; }
  void head_backward(int pass) {
    outside_ = pass == 1 ? 0 : rows_ * static_cast<double>(kept_.outside);
    add(Holder::OutputGradients, rows_ * static_cast<double>(kept_.head_working));
    for (size_t i = model_.behind.size(); i-- > 0;) {
      const PlannedLayer& layer = model_.behind[i];
      if (layer.by_samples) {
        head_in_chunks(layer, ways_.behind[i], pass);
      } else if (sums_in_backward(pass)) {
        add_gradient(model_.num_stretches() - 1, bytes_.gradient(layer));
      } else if (layer.is_matrix) {
        consume(layer, ways_.behind[i], pass);
        // The second pass needs the scores: their gradient has a place of its own, also where no
        // engine holds it.
        if (pass == 1 && !layer.trained) add(Holder::OutputGradients, bytes_.output(layer));
      } else {
        add(Holder::EngineKept, pass == 1 ? 0 : ways_.behind[i].rows_bytes);
      }
    }
    free(Holder::OutputGradients, ledger_.of(Holder::OutputGradients));
    add(Holder::OutputGradients, rows_ * s_ * stream());
    if (pass != 1) free(Holder::Activations, outside_);
  }

  // Beside the scores of one chunk: the sum, every sample's row, or one row after the other. Rows
  // of a weight that the table shares wait for it.
  void head_in_chunks(const PlannedLayer& layer, const LayerWay& way, int pass) {
    const double chunk = static_cast<double>(kept_.chunk),
                 row = way.rows_bytes / static_cast<double>(situation_.samples);
    add(Holder::OutputGradients, chunk);
    if (!layer.trained) return;
    if (sums_in_backward(pass)) {
      // A second pass adds rows up, beside the next one's chunks; a GPU hands an only one on.
      const bool one = situation_.samples == 1, shared = sums_.is_summed(layer);
      const bool is_sum = pass == 0 || (model_.fused && one && !shared);
      add(Holder::EngineTemporaries, is_sum ? 0 : row);
      if (one && !is_sum) free(Holder::OutputGradients, chunk);
      add_gradient(model_.num_stretches() - 1, bytes_.gradient(layer));
      free(Holder::EngineTemporaries, is_sum ? 0 : row);
      return;
    }
    const bool waits = pass == 0 ? way.kept == Kept::Rows : sums_.is_summed(layer);
    const double bytes = pass == 0 || waits ? way.rows_bytes : row;
    add(Holder::EngineKept, bytes);
    if (!waits) free(Holder::EngineKept, bytes);
    if (pass == 1 && waits) of_head_ = bytes;
  }

  double stream() const { return static_cast<double>(model_.options().hidden_dim); }

  // (a, g) of a layer stay until the launch of its stretch; g of a head whose weight is the
  // table's, too, until the table's backward, as both make one norm.
  void consume(const PlannedLayer& layer, const LayerWay& way, int pass) {
    if (!layer.trained) return;
    const double both = (pass == 1 ? 0 : bytes_.own_input(layer)) + bytes_.output(layer);
    // The gradient of scores takes their place.
    const double taken = std::min(both, outside_);
    outside_ -= taken;
    free(Holder::Activations, taken);
    add(Holder::EngineKept, both);
    if (pass == 1 && sums_.is_summed(layer)) {
      of_head_ = both;
    } else {
      pending_.push_back({&way, both, bytes_.bias_working(layer, true)});
    }
  }

  // Norms of the stretch before are formed: rows come beside (a, g), then what is not kept goes.
  void launch(int pass) {
    if (pass == 2) return sum_joined();
    for (const PendingLayer& own : pending_)
      if (own.way->kept == Kept::Rows && pass == 0) add(Holder::EngineKept, own.way->rows_bytes);
    for (const PendingLayer& own : pending_) ledger_.touch(Holder::EngineTemporaries, own.working);
    for (const PendingLayer& own : pending_)
      if (own.way->kept != Kept::Inputs || pass == 1) free(Holder::EngineKept, own.both);
    pending_.clear();
  }

  // In the second pass the sums of a block are formed when the next one begins.
  void sum_joined() {
    if (joined_stretch_ == 0) return;
    const size_t stretch = joined_stretch_;
    joined_stretch_ = 0;
    double sums = 0;
    for (size_t i = 0; i < model_.block.size(); ++i)
      if (ways_.block[i].joins && !model_.block[i].one_position)
        sums += bytes_.gradient(model_.block[i]);
    add_gradient(stretch, sums);
    reduce_finished(stretch);
    free(Holder::EngineKept, joined_bytes_);
  }

  // From the last group to the first. Owners: what a layer's backward is given and makes are output
  // gradients until an engine holds them.
  void block_backward(size_t stretch, int pass) {
    const bool is_private = ways_.is_private;
    const bool stays = pass == 1;  // activations
    const double unit = rows_ * s_, D = stream();
    add(Holder::Activations, kept_blocks_.made_again(stretch - 1));
    // A gate is between the stream and a branch, whose gradient is then another one.
    add(Holder::OutputGradients, gated_ ? unit * D : 0);
    double joined = 0;  // (a, g) of this block that wait for the launch
    double norms = kept_blocks_.whole() + (again_ ? unit * groups_.back().in : 0);
    for (size_t i = 0; i < groups_.size(); ++i)
      norms -= unit * (groups_[i].in + (i % 2 == 0 ? groups_[i].out : 0));
    norms = std::max(0.0, norms);
    for (size_t i = groups_.size(); i-- > 0;) {
      const BlockGroup& group = groups_[i];
      const bool again = i + 1 == groups_.size() && again_;
      // Layers that share a launch hold (a, g) until it; the others let go of them at once, unless
      // they are kept.
      const bool holds = is_private && (pass == 0 || ways_.block[group.layers[0]].joins);
      // Products: the gradient of the input is made from that of the outputs.
      add(Holder::OutputGradients, unit * group.in * (group.layers.size() > 1 ? 2 : 1));
      // The product, and the gradients of its factors: beside these where another pass needs them,
      // else in their place and in that of the product's gradient (blocks/linear.cpp).
      const auto make_again = [&] {
        if (!stays) free(Holder::Activations, unit * groups_[i - 1].out);
        add(Holder::Activations, unit * group.in);
        add(Holder::OutputGradients, unit * std::max(0.0, groups_[i - 1].out - group.in));
      };
      if (again && stays) make_again();
      if (i + 1 == groups_.size()) launch(pass);
      if (again && !stays) make_again();
      for (auto layer = group.layers.rbegin(); layer != group.layers.rend(); ++layer) {
        const PlannedLayer& own = model_.block[*layer];
        if (sums_in_backward(pass) && !holds)
          add_gradient(stretch,
                       bytes_.gradient(own) + static_cast<double>(own.adapted * model_.sum_bytes));
        if (pass == 2 || !ways_.block[*layer].joins)
          ledger_.touch(is_private ? Holder::EngineTemporaries : Holder::Gradients,
                        bytes_.bias_working(own, is_private));
      }
      if (group.layers.size() > 1) free(Holder::OutputGradients, unit * group.in);
      const double a = unit * group.in, g = unit * group.out;
      if (holds) {
        // (a, g) change their owner. Behind a branch, g is the gradient of the stream.
        free(Holder::OutputGradients, g);
        const bool goes = !stays || again;
        if (goes) free(Holder::Activations, a);
        const double both = (goes ? a : 0) + g;
        add(Holder::EngineKept, both);
        joined += both;
      } else {
        if (!stays || again) free(Holder::Activations, a);
        free(Holder::OutputGradients, group.behind_norm || gated_ ? g : 0);
      }
      if (group.behind_norm) {
        // The norm's backward makes the stream's gradient anew, and that of a branch before it.
        add(Holder::OutputGradients, unit * D * (gated_ ? 2 : 1));
        free(Holder::OutputGradients, unit * group.in + (holds && !gated_ ? 0 : unit * D));
        if (!stays) free(Holder::Activations, norms / 2);
      } else {
        const double before = unit * groups_[i - 1].out;
        if (i == 1 && attends(model_, groups_)) {
          const double extra = attention_working(model_, groups_, rows_, ways_.two_passes);
          add(Holder::OutputGradients, before + extra);
          free(Holder::OutputGradients, extra + unit * group.in);
        } else {
          // In place of what it is given, where kernels write.
          const double made = again          ? 0
                              : model_.fused ? std::max(0.0, before - unit * group.in)
                                             : before;
          add(Holder::OutputGradients, made);
          if (!model_.fused) free(Holder::OutputGradients, unit * group.in);
        }
        if (!stays && !again) free(Holder::Activations, before);
      }
    }
    for (size_t i = 0; i < model_.block.size(); ++i) {
      const PlannedLayer& layer = model_.block[i];
      const bool is_handed_over = layer.trained || layer.bias > 0;
      if (!is_handed_over || (!layer.is_small && !layer.one_position)) continue;
      if (sums_in_backward(pass)) {
        add_gradient(stretch, bytes_.gradient(layer));
      } else if (pass == 0) {
        add(Holder::EngineKept, ways_.block[i].kept == Kept::Rows
                                    ? ways_.block[i].rows_bytes
                                    : bytes_.input(layer) + bytes_.output(layer));
      }
    }
    // What the whole block had is gone, but for what waits.
    ledger_.of(Holder::OutputGradients) = unit * D;
    if (stays) free(Holder::Activations, kept_blocks_.made_again(stretch - 1));
    if (!is_private) return;
    hold_joined(stretch, joined, pass);
  }

  void hold_joined(size_t stretch, double joined, int pass) {
    if (pass == 2) {  // summed up when the next block begins
      joined_stretch_ = stretch;
      joined_bytes_ = joined;
      return;
    }
    for (size_t i = 0; i < model_.block.size(); ++i) {
      const PlannedLayer& layer = model_.block[i];
      if (!layer.is_matrix || layer.one_position || !layer.trained) continue;
      if (pass == 1 && !ways_.block[i].joins) continue;
      const bool is_last = !groups_.empty() && i == groups_.back().layers.front();
      const bool has_a = pass != 1 || (is_last && again_);
      const double a = has_a ? bytes_.own_input(layer) : 0;
      pending_.push_back(
          {&ways_.block[i], a + bytes_.output(layer), bytes_.bias_working(layer, true)});
    }
    // Frozen layers let go of theirs at once.
    double waits = 0;
    for (const PendingLayer& own : pending_) waits += own.both;
    free(Holder::EngineKept, std::max(0.0, joined - waits));
  }

  void first_backward(int pass) {
    free(Holder::EngineKept, std::exchange(of_head_, 0));
    for (size_t i = model_.before.size(); i-- > 0;) {
      const PlannedLayer& layer = model_.before[i];
      if (sums_in_backward(pass)) {
        if (!sums_.is_summed(layer)) add_gradient(0, bytes_.gradient(layer));
        if (pass == 0) ledger_.touch(Holder::Gradients, bytes_.bias_working(layer, false));
      } else if (pass == 0 && layer.trained) {
        const bool rows = ways_.before[i].kept == Kept::Rows;
        if (rows && sums_.is_summed(layer)) {
          // And the sum with the head's, which takes their place.
          ledger_.touch(Holder::EngineTemporaries, 2 * ways_.before[i].rows_bytes);
        } else {
          add(Holder::EngineKept, rows ? ways_.before[i].rows_bytes : bytes_.output(layer));
        }
      }
    }
  }

  // ---- gradients -------------------------------------------------------------------------------
  void add_gradient(size_t stretch, double bytes) {
    if (!gathers_.units_of(stretch).empty())
      gradients_.form(gathers_.units_of(stretch).front(), bytes);
  }
  void reduce_finished(size_t stretch) {
    for (const size_t u : gathers_.units_of(stretch))
      if (stretch == units_[u].backward_ends_at) gradients_.complete(u);
  }

  const PlannedModel& model_;
  const EngineWays& ways_;
  const sharding::ShardingOptions& sharding_;
  const MemorySituation& situation_;
  const std::vector<PlannedUnit>& units_;
  std::vector<BlockGroup> groups_;
  const models::ActivationBytes& kept_;
  double rows_, s_;
  LayerBytes bytes_;
  KeptBlocks kept_blocks_;
  bool again_;  ///< makes_product_again
  bool gated_;  ///< branches of blocks, by a layer of their condition
  MemoryLedger ledger_;
  GatherWalk gathers_;
  GradientWalk gradients_;
  SumWalk sums_;
  MemoryPlan plan_;
  std::vector<PendingLayer> pending_;
  size_t joined_stretch_ = 0;
  double joined_bytes_ = 0;
  double of_head_ = 0;  ///< what waits for the table that has the head's weight
  double outside_ = 0;  ///< activations of the last layers that are still there
};

}  // namespace

MemoryPlan walk_memory(const PlannedModel& model, const EngineWays& ways,
                       const sharding::ShardingOptions& sharding,
                       const MemorySituation& situation) {
  return Walk(model, ways, sharding, situation).run();
}

}  // namespace moonshard::plan
