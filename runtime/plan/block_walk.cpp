#include "runtime/plan/block_walk.h"

#include <algorithm>

namespace moonshard::plan {

BlockWalk::BlockWalk(const PlannedModel& model, const EngineWays& ways,
                     const MemorySituation& situation, const LayerBytes& bytes,
                     const KeptBlocks& kept_blocks, StretchGradients& gradients,
                     MemoryLedger& ledger)
    : model_(model),
      ways_(ways),
      bytes_(bytes),
      kept_blocks_(kept_blocks),
      gradients_(gradients),
      ledger_(ledger),
      groups_(block_groups(model)),
      rows_(static_cast<double>(situation.samples * model.tokens)),
      stream_(bytes.stream(static_cast<double>(model.options().hidden_dim))),
      again_(makes_product_again(model, groups_)),
      gated_(std::ranges::any_of(model.block, &PlannedLayer::one_position)) {
  for (const BlockGroup& group : groups_) sizes_.emplace_back(model, group, bytes);
}

void BlockWalk::forward(size_t stretch) {
  const KeptBlock& kept = kept_blocks_.of(stretch);
  if (attends(model_, groups_)) {
    double later = 0;  // of the block, not there yet
    for (size_t i = 1; i < groups_.size(); ++i)
      later += kept.groups[i].input + kept.groups[i].output;
    const double scores = scores_in_forward(model_, rows_);
    ledger_.touch(Holder::Activations, std::max(0.0, scores - later));
  }
  for (const BlockGroup& group : groups_)
    ledger_.touch(Holder::Activations, dropout_working(model_, group, rows_));
  if (!model_.fused) pass_unkept(kept);
}

// What no layer keeps is there while a group reads it and writes its outputs.
void BlockWalk::pass_unkept(const KeptBlock& kept) {
  double later = 0;  // of the block, not there yet
  for (size_t i = groups_.size(); i-- > 0;) {
    double read = sizes_[i].in - kept.groups[i].input;
    if (!groups_[i].behind_norm) read += sizes_[i - 1].out - kept.groups[i - 1].output;
    const double written = sizes_[i].out - kept.groups[i].output;
    if (read > 0) ledger_.touch(Holder::Activations, std::max(0.0, read + written - later));
    later += kept.groups[i].input + kept.groups[i].output;
  }
}

void BlockWalk::backward(size_t stretch, Pass pass) {
  const bool stays = pass == Pass::Norms;  // activations
  const KeptBlock& kept = kept_blocks_.of(stretch);
  const double made_again = kept_blocks_.made_again(stretch);
  own_ways_ = &ways_.of_block(stretch - 1);
  add(Holder::Activations, made_again);
  if (made_again > 0) forward(stretch);
  // A gate is between the stream and a branch, whose gradient is then another one.
  add(Holder::OutputGradients, gated_ ? stream_ : 0);
  double joined = 0;  // (a, g) of this block that wait for the launch
  for (size_t i = groups_.size(); i-- > 0;) {
    const BlockGroup& group = groups_[i];
    // Products: the gradient of the input is made from that of the outputs.
    add(Holder::OutputGradients, sizes_[i].in * (group.layers.size() > 1 ? 2 : 1));
    if (is_made_again(i) && stays) make_product_again(i, pass);
    if (i + 1 == groups_.size()) launch(pass);
    ledger_.touch(Holder::Activations, dropout_working(model_, group, rows_));
    if (is_made_again(i) && !stays) make_product_again(i, pass);
    form_gradients(stretch, group, pass);
    if (group.layers.size() > 1) free(Holder::OutputGradients, sizes_[i].in);
    joined += let_go_of_operands(kept, i, pass);
    reach_input(kept, i, pass);
  }
  hand_over_small(stretch, pass);
  // What the whole block had is gone, but for what waits.
  ledger_.of(Holder::OutputGradients) = stream_;
  if (stays) free(Holder::Activations, made_again);
  if (ways_.is_private) hold_joined(stretch, joined, pass);
}

// Layers that share a launch hold (a, g) until it, an adapter's those of the layer beside it; the
// others let go of them at once, unless they are kept.
bool BlockWalk::holds(const KeptBlock& kept, const BlockGroup& group, Pass pass) const {
  const auto joins = [&](size_t layer) { return ways_.block[layer].joins; };
  // A CPU's engines have formed a sample's gradients when a layer's backward ends.
  const auto waits = [&](size_t layer) {
    const PlannedLayer& own = model_.block[layer];
    return (own.trained || own.bias > 0) && (*own_ways_)[layer].kept != Kept::Rows;
  };
  if (!model_.fused && kept.is_usual && std::ranges::none_of(group.layers, waits) &&
      std::ranges::none_of(group.adapters, waits))
    return false;
  return ways_.is_private && (pass == Pass::Only || joins(group.layers[0]) ||
                              std::ranges::any_of(group.adapters, joins));
}

bool BlockWalk::has_rows_at_once(size_t layer, Pass pass) const {
  return !model_.fused && pass == Pass::Only && ways_.is_private && model_.block[layer].trained &&
         (*own_ways_)[layer].kept == Kept::Rows;
}

// The product, and the gradients of its factors: beside these where another pass needs them, else
// in their place and in that of the product's gradient (blocks/linear.cpp).
void BlockWalk::make_product_again(size_t group, Pass pass) {
  const double in = sizes_[group].in, factors = sizes_[group - 1].out;
  if (pass != Pass::Norms) free(Holder::Activations, factors);
  add(Holder::Activations, in);
  add(Holder::OutputGradients, std::max(0.0, factors - in));
}

void BlockWalk::form_gradients(size_t stretch, const BlockGroup& group, Pass pass) {
  const KeptBlock& kept = kept_blocks_.of(stretch);
  for (auto layer = group.layers.rbegin(); layer != group.layers.rend(); ++layer) {
    const PlannedLayer& own = model_.block[*layer];
    if (sums_up(ways_, pass) && !holds(kept, group, pass))
      gradients_.form(stretch,
                      bytes_.gradient(own) + static_cast<double>(own.adapted * model_.sum_bytes));
    if (pass == Pass::Sums) ledger_.touch(Holder::EngineTemporaries, bytes_.sum_working(own));
    if (has_rows_at_once(*layer, pass)) add(Holder::EngineKept, bytes_.rows((*own_ways_)[*layer]));
    if (pass == Pass::Sums || !ways_.block[*layer].joins)
      ledger_.touch(ways_.is_private ? Holder::EngineTemporaries : Holder::Gradients,
                    bytes_.bias_working(own, ways_.is_private));
  }
}

// Returns what an engine holds of them until the launch.
double BlockWalk::let_go_of_operands(const KeptBlock& kept, size_t index, Pass pass) {
  const BlockGroup& group = groups_[index];
  const double a = kept.groups[index].input, g = sizes_[index].out;
  const bool goes = pass != Pass::Norms || is_made_again(index);
  if (!holds(kept, group, pass)) {
    if (goes) free(Holder::Activations, a);
    free(Holder::OutputGradients, group.behind_norm || gated_ ? g : 0);
    return 0;
  }
  // (a, g) change their owner. Behind a branch, g is the gradient of the stream.
  free(Holder::OutputGradients, g);
  if (goes) free(Holder::Activations, a);
  const double both = (goes ? a : 0) + g;
  add(Holder::EngineKept, both);
  return both;
}

// The gradient of a group's input goes through what lies before it: a norm, attention, or the
// activation.
void BlockWalk::reach_input(const KeptBlock& kept, size_t index, Pass pass) {
  const BlockGroup& group = groups_[index];
  const double input = sizes_[index].in;
  const bool stays = pass == Pass::Norms;
  if (group.behind_norm) {
    // The norm's backward makes the stream's gradient anew, and that of a branch before it.
    add(Holder::OutputGradients, stream_ * (gated_ ? 2 : 1));
    free(Holder::OutputGradients, input + (holds(kept, group, pass) && !gated_ ? 0 : stream_));
    if (!stays) free(Holder::Activations, kept.others / 2);
    return;
  }
  const double before = sizes_[index - 1].out;
  if (index == 1 && attends(model_, groups_)) {
    const double extra = attention_working(model_, groups_, rows_, ways_.two_passes);
    add(Holder::OutputGradients, before + extra);
    free(Holder::OutputGradients, extra + input);
  } else {
    // In place of what it is given, where kernels write.
    const double made = is_made_again(index) ? 0
                        : model_.fused       ? std::max(0.0, before - input)
                                             : before;
    add(Holder::OutputGradients, made);
    if (!model_.fused) free(Holder::OutputGradients, input);
  }
  if (!stays && !is_made_again(index)) free(Holder::Activations, kept.groups[index - 1].output);
}

// Layers that join no group: scales, biases, and those that read a sample's one position.
void BlockWalk::hand_over_small(size_t stretch, Pass pass) {
  for (size_t i = 0; i < model_.block.size(); ++i) {
    const PlannedLayer& layer = model_.block[i];
    const bool is_handed_over = layer.trained || layer.bias > 0;
    if (!is_handed_over || (!layer.is_small && !layer.one_position)) continue;
    if (sums_up(ways_, pass)) {
      gradients_.form(stretch, bytes_.gradient(layer));
    } else if (pass == Pass::Only) {
      add(Holder::EngineKept, ways_.block[i].kept == Kept::Rows
                                  ? bytes_.rows(ways_.block[i])
                                  : bytes_.input(layer) + bytes_.output(layer));
    }
  }
}

void BlockWalk::hold_joined(size_t stretch, double joined, Pass pass) {
  if (pass == Pass::Sums) {  // summed up when the next block begins
    joined_stretch_ = stretch;
    joined_bytes_ = joined + between_adapters();
    add(Holder::EngineKept, joined_bytes_ - joined);
    return;
  }
  for (size_t i = 0; i < model_.block.size(); ++i) {
    const PlannedLayer& layer = model_.block[i];
    if (!layer.is_matrix || layer.one_position || !layer.trained) continue;
    if (pass == Pass::Norms && !ways_.block[i].joins) continue;
    if (has_rows_at_once(i, pass)) {
      if (layer.is_adapter) add(Holder::EngineKept, bytes_.rows((*own_ways_)[i]));
      continue;
    }
    const bool is_last = !groups_.empty() && i == groups_.back().layers.front();
    const bool has_a = (pass != Pass::Norms || (is_last && again_)) && !model_.reads_batch(stretch);
    const double a = has_a ? bytes_.own_input(layer) : 0;
    hold({&ways_.of_block(stretch - 1)[i], a + bytes_.output(layer),
          bytes_.bias_working(layer, true)});
  }
  // Frozen layers let go of theirs at once; adapters hold what is between their two, too.
  double waits = 0;
  for (const PendingLayer& own : pending_) waits += own.both;
  if (waits > joined) add(Holder::EngineKept, waits - joined);
  if (waits < joined) free(Holder::EngineKept, joined - waits);
}

// Of adapters that join: what the first one makes, and its gradient.
double BlockWalk::between_adapters() const {
  double bytes = 0;
  for (const BlockGroup& group : groups_)
    for (const size_t layer : group.adapters)
      if (ways_.block[layer].joins)
        bytes += bytes_.stream(
            static_cast<double>(std::min(model_.block[layer].in, model_.block[layer].out)));
  return bytes;
}

// Rows come beside (a, g), then what is not kept goes.
void BlockWalk::launch(Pass pass) {
  if (pass == Pass::Sums) return sum_joined();
  for (const PendingLayer& own : pending_)
    if (own.way->kept == Kept::Rows && pass == Pass::Only)
      add(Holder::EngineKept, bytes_.rows(*own.way));
  for (const PendingLayer& own : pending_) ledger_.touch(Holder::EngineTemporaries, own.working);
  for (const PendingLayer& own : pending_)
    if (own.way->kept != Kept::Inputs || pass == Pass::Norms) free(Holder::EngineKept, own.both);
  pending_.clear();
}

// In the second pass the sums of a block are formed when the next one begins.
void BlockWalk::sum_joined() {
  if (joined_stretch_ == 0) return;
  const size_t stretch = joined_stretch_;
  joined_stretch_ = 0;
  double sums = 0;
  for (size_t i = 0; i < model_.block.size(); ++i)
    if (ways_.block[i].joins && !model_.block[i].one_position)
      sums += bytes_.gradient(model_.block[i]);
  gradients_.form(stretch, sums);
  gradients_.reduce_finished(stretch);
  free(Holder::EngineKept, joined_bytes_);
}

}  // namespace moonshard::plan
