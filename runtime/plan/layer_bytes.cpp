#include "runtime/plan/layer_bytes.h"

#include <algorithm>
#include <cmath>

namespace moonshard::plan {

// Families count what a block keeps in bytes of a position. Its tensors are the inputs of layers
// and, behind norms, their outputs; what is left are tensors as wide as the stream between blocks
// (inputs of norms, branches before a gate), and less than one of them of small ones.
KeptBlocks::KeptBlocks(const PlannedModel& model, const models::ActivationBytes& kept,
                       const LayerBytes& bytes, double rows, const std::string& checkpointing,
                       int64_t every)
    : recomputes_(checkpointing != "none"), every_(every) {
  const auto& o = model.options();
  const auto number = static_cast<double>(model.compute_bytes);
  const double unit = rows * number, width = static_cast<double>(o.hidden_dim);
  const std::vector<BlockGroup> groups = block_groups(model);
  const bool again = makes_product_again(model, groups);
  double others = rows * static_cast<double>(kept.block);
  for (size_t i = 0; i < groups.size(); ++i) {
    const GroupBytes group(model, groups[i], bytes);
    const bool has_input = !again || i + 1 < groups.size();
    whole_ += (has_input ? group.in : 0) + (groups[i].behind_norm ? group.out : 0);
    others -= unit * ((has_input ? groups[i].in : 0) + (groups[i].behind_norm ? groups[i].out : 0));
  }
  const double streams = width > 0 ? std::max(0.0, std::floor(others / (unit * width))) : 0;
  others += streams * (bytes.stream(width) - unit * width);
  whole_ += others;
  norm_inputs_ = std::max(0.0, others);

  double stays = bytes.held(rows * static_cast<double>(kept.block_input));
  if (checkpointing == "keep_attention") {
    // Beside its numbers one of every head and position.
    const double attention = rows * static_cast<double>(kept.attention_output);
    const double of_head = number * static_cast<double>(o.head_dim);
    const double statistics = attention * 4 / (4 + of_head);
    stays += bytes.held(attention - statistics) + statistics;
  }
  made_again_ = whole_ - stays;
}

}  // namespace moonshard::plan
