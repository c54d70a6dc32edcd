#include "runtime/plan/kept_blocks.h"

#include <algorithm>
#include <cmath>

namespace moonshard::plan {

// Families count what a block keeps in bytes of a position. Its tensors are the inputs of layers
// and, behind norms, their outputs; what is left are tensors as wide as the stream between blocks
// (inputs of norms, branches before a gate), and less than one of them of small ones.
KeptBlocks::KeptBlocks(const PlannedModel& model, const models::ActivationBytes& kept,
                       const LayerBytes& bytes, double rows, const std::string& checkpointing,
                       int64_t every)
    : model_(model),
      bytes_(bytes),
      groups_(block_groups(model)),
      recomputes_(checkpointing != "none"),
      every_(every) {
  const auto& o = model.options();
  const auto number = static_cast<double>(model.compute_bytes);
  const double unit = rows * number, width = static_cast<double>(o.hidden_dim);
  const bool again = makes_product_again(model, groups_);
  double others = rows * static_cast<double>(kept.block);
  usual_.groups.reserve(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    const GroupBytes group(model, groups_[i], bytes);
    const bool has_input = !again || i + 1 < groups_.size();
    usual_.groups.push_back({group.in, groups_[i].behind_norm ? group.out : 0});
    usual_.whole += (has_input ? group.in : 0) + usual_.groups.back().output;
    others -=
        unit * ((has_input ? groups_[i].in : 0) + (groups_[i].behind_norm ? groups_[i].out : 0));
  }
  const double streams = width > 0 ? std::max(0.0, std::floor(others / (unit * width))) : 0;
  others += streams * (bytes.stream(width) - unit * width);
  usual_.whole += others;
  usual_.others = std::max(0.0, others);
  if (!model.fused) {
    first_ = usual_;  // where its layers are trained in another way
    leave_out_untrained_inputs();
  }

  double stays = bytes.held(rows * static_cast<double>(kept.block_input));
  if (checkpointing == "keep_attention") {
    // Beside its numbers one of every head and position.
    const double attention = rows * static_cast<double>(kept.attention_output);
    const double of_head = number * static_cast<double>(o.head_dim);
    const double statistics = attention * 4 / (4 + of_head);
    stays += bytes.held(attention - statistics) + statistics;
  }
  usual_.made_again = usual_.whole - stays;
  if (model.fused) return;
  first_.is_usual = model.first_in_backward == static_cast<size_t>(model.shown_block) + 1;
  if (first_.is_usual) first_ = usual_;
  first_.made_again = first_.whole - stays;
  if (!recomputes_ && first_.is_usual) leave_out_before_first_trained();
  if (model.reads_batch(model.first_in_backward) && !groups_.empty()) {
    first_.whole -= first_.groups[0].input;
    first_.groups[0].input = 0;
  }
}

bool is_used(const std::vector<PlannedLayer>& stretch, size_t layer) {
  const PlannedLayer& own = stretch[layer];
  const auto is_beside = [&](const PlannedLayer& other) {
    return other.is_adapter && other.beside == layer;
  };
  return own.trained || own.bias > 0 || std::ranges::any_of(stretch, is_beside);
}

bool KeptBlocks::condition_is_trained() const {
  for (size_t i = 0; i < model_.block.size(); ++i)
    if (model_.block[i].one_position && is_used(i)) return true;
  return std::ranges::any_of(model_.before, [](const PlannedLayer& layer) {
    return layer.one_position && (layer.trained || layer.bias > 0);
  });
}

void KeptBlocks::leave_out_untrained_inputs() {
  for (size_t i = 0; i < groups_.size(); ++i) {
    const bool of_attention = i == 1 && attends(model_, groups_);  // which keeps its output itself
    if (of_attention ||
        std::ranges::any_of(groups_[i].layers, [this](size_t layer) { return is_used(layer); }))
      continue;
    usual_.whole -= usual_.groups[i].input;
    usual_.groups[i].input = 0;
  }
  // Where the condition is constant, so are scales and gates: what they multiply is not kept.
  constexpr double kMultiplied = 4;  // twice a norm's output, and both branches
  const bool has_condition = std::ranges::any_of(model_.block, &PlannedLayer::one_position);
  if (!has_condition || condition_is_trained()) return;
  const double multiplied = std::min(usual_.others, kMultiplied * stream());
  usual_.whole -= multiplied;
  usual_.others -= multiplied;
}

// Nothing before the first layer that is trained has a gradient.
void KeptBlocks::leave_out_before_first_trained() {
  if (groups_.size() != 4 || condition_is_trained()) return;
  size_t trained = 0;  // the first such layer
  while (trained < model_.block.size() && !is_used(trained)) ++trained;
  if (trained == model_.block.size()) return;
  // The group that has it; a norm belongs to the one behind it, those of heads to theirs.
  size_t group = 0;
  while (group + 1 < groups_.size() && groups_[group].layers.back() < trained) ++group;
  const bool is_small = model_.block[trained].is_small;
  if (is_small && !groups_[group].behind_norm) --group;

  for (size_t i = 0; i < group; ++i) {
    first_.groups[i].input = first_.groups[i].output = 0;
  }
  // Inputs of the norms before it; and behind gate and up, what lies between them.
  const double norms = static_cast<double>(group / 2 + (is_small ? 0 : 1)) * stream();
  first_.others = group == 3 ? 0 : std::max(0.0, first_.others - norms);
  first_.whole = first_.others;
  for (size_t i = 0; i < groups_.size(); ++i)
    first_.whole += first_.groups[i].input + first_.groups[i].output;
}

}  // namespace moonshard::plan
