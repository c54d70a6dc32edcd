#include "runtime/plan/step_costs.h"

#include <algorithm>

#include "runtime/plan/block_groups.h"

namespace moonshard::plan {
namespace {

// Of noise beside the memory traffic of the update, which hides the rest of it.
constexpr double kNoiseShown = 0.25;
// Deterministic operations, where backward runs twice: attention's backward takes so much longer,
// and so many times what a block keeps is written by filling new tensors.
constexpr double kInOrder = 0.7, kFilled = 3;
// Bytes that the update moves in the time in which a state is rounded by a coin.
constexpr double kRounded = 30;
// Bytes that a fast kernel moves in the time of one element of a copy between layouts of heads, and
// of a sum over positions: such kernels go by elements. From kernels of a traced step.
constexpr double kStrided = 8, kReduced = 6;

class Costs {
 public:
  Costs(const PlannedModel& model, const EngineWays& ways, int64_t samples, bool casts,
        const MachineProfile& machine)
      : model_(model),
        ways_(ways),
        machine_(machine),
        rates_(machine.rates(model.compute_bytes == 2 ? "bfloat16" : "float32")),
        casts_(casts && model.value_bytes != model.compute_bytes),
        samples_(static_cast<double>(samples)),
        rows_(samples_ * static_cast<double>(model.tokens)) {}

  StepCosts all() {
    StepCosts costs;
    add_layers(costs.before, model_.before, ways_.before, /*is_first=*/true);
    add_layers(costs.block, model_.block, ways_.block, /*is_first=*/false);
    add_layers(costs.behind, model_.behind, ways_.behind, /*is_first=*/false);
    if (has_attention()) costs.block.launches = launches_of_block();
    add_elements(costs.block);
    add_attention(costs.block);
    add_outside(costs);
    return costs;
  }

 private:
  double positions_of(const PlannedLayer& layer) const {
    return layer.one_position ? samples_ : rows_;
  }

  double element_bytes() const { return static_cast<double>(model_.compute_bytes); }
  double gap() const { return machine_.gap_us * 1e-6; }

  void add_layers(StretchCost& cost, const std::vector<PlannedLayer>& layers,
                  const std::vector<LayerWay>& ways, bool is_first) const {
    for (size_t i = 0; i < layers.size(); ++i) {
      const PlannedLayer& layer = layers[i];
      cost.launches += 1;
      if (!layer.is_matrix) continue;
      const double m = positions_of(layer), in = static_cast<double>(layer.in),
                   out = static_cast<double>(layer.out);
      cost.forward += product_seconds(rates_, m, out, in) + gap();
      if (!is_first) cost.backward += product_seconds(rates_, m, in, out) + gap();
      if (casts_) {  // weights that are kept in another dtype, at each use
        const double cast =
            static_cast<double>(layer.weight * (model_.value_bytes + model_.compute_bytes)) /
            machine_.element_per_s;
        cost.forward += cast + gap();
        if (!is_first) cost.backward += cast + gap();
      }
      if (layer.trained && !ways_.is_private) {
        cost.backward += product_seconds(rates_, out, in, m) + gap();
        cost.backward +=
            static_cast<double>(model_.sum_bytes * layer.weight) / machine_.element_per_s;
      }
    }
    for (const LayerWay& way : ways) {
      cost.norms += way.norm_s;
      cost.sums += way.sum_s;
    }
  }

  // Element-wise bytes of a block: norms read and write their input, the operation between two
  // groups reads what the first made and writes the second's input, branches are added to the
  // stream. Backward reads what was saved beside what it is given, and adds the input's gradients
  // of layers that read the same.
  void add_elements(StretchCost& cost) const {
    const std::vector<BlockGroup> groups = block_groups(model_);
    double forward = 0, backward = 0;
    for (size_t i = 0; i < groups.size(); ++i) {
      const BlockGroup& group = groups[i];
      backward += (static_cast<double>(group.layers.size()) - 1) * 3 * group.in;
      if (i % 2 == 0) {
        forward += 2 * group.in;
        backward += 4 * group.in;
        continue;
      }
      const double before = groups[i - 1].out;
      const bool is_attention = i == 1 && has_attention();
      forward += is_attention ? 4.0 / 3 * before : before + group.in;
      backward += is_attention ? 4.0 / 3 * before : 2 * before + 2 * group.in;
      forward += 3 * group.out;
      backward += 3 * group.out;
    }
    if (machine_.is_gpu) backward += layout_copies(groups) + modulation_sums();
    const double plain = model_.fused ? 1 : 2.2;  // a chain of operations instead of one kernel
    const double scale =
        plain * rows_ * static_cast<double>(model_.compute_bytes) / machine_.element_per_s;
    cost.forward += forward * scale + 4 * gap();
    cost.backward += backward * scale + 6 * gap();
  }

  // In units of calibration, which counts a ninth of a block with seven matrices and two norms.
  // Norms launch one kernel, adapters run inside of their layer's call, and conditioning has its
  // own operations beside its layer.
  double launches_of_block() const {
    constexpr double kMatrix = 8.0 / 7, kNorm = 0.5, kAdapter = 0.35, kConditioning = 1;
    double launches = 0, norms = 0;
    for (const PlannedLayer& layer : model_.block) {
      if (layer.is_matrix) launches += is_adapter(layer) ? kAdapter : kMatrix;
      if (layer.is_small) norms += kNorm;
      if (layer.one_position) launches += kConditioning;
    }
    return launches + std::max(norms, 2 * kNorm);
  }

  // One layer for q, k and v: their gradients are put into one tensor, and that of the output is
  // turned, each a copy of all three.
  double layout_copies(const std::vector<BlockGroup>& groups) const {
    const bool is_joint = has_attention() && !groups.empty() && groups[0].layers.size() == 1 &&
                          groups[0].out >= 3 * groups[0].in;
    return is_joint ? 2 * 2 * kStrided / element_bytes() * groups[0].out : 0;
  }

  // A layer of one position whose output scales, shifts and gates all of them: sums over positions.
  double modulation_sums() const {
    double elements = 0;
    for (const PlannedLayer& layer : model_.block)
      if (layer.one_position) elements += static_cast<double>(layer.out);
    return kReduced / element_bytes() * elements;
  }

  bool has_attention() const { return model_.options().num_heads > 0; }

  void add_attention(StretchCost& cost) const {
    const auto& o = model_.options();
    if (!has_attention() || model_.num_blocks == 0) return;
    const double width = static_cast<double>(o.num_heads * o.head_dim);
    const bool causal = o.task != "denoise";
    const double T = static_cast<double>(model_.tokens);
    const double work = 4 * rows_ * T * width * (causal ? 0.5 : 1);
    const AttentionRate rate = attention_rate(rates_, T, static_cast<double>(o.head_dim));
    cost.attention = work / rate.forward_per_s + gap();
    cost.forward += cost.attention;
    cost.backward += kAttentionBackward * work / rate.backward_per_s + 2 * gap();
    if (!ways_.two_passes || !machine_.is_gpu) return;
    // Twice the same bits: attention's kernel adds up in order, and every new tensor is filled.
    cost.backward += kInOrder * kAttentionBackward * work / rate.backward_per_s;
    const double filled =
        rows_ * static_cast<double>(model_.kept_twice.block) / machine_.element_per_s;
    cost.forward += kFilled * filled;
    cost.backward += kFilled * filled;
  }

  void add_outside(StepCosts& costs) const {
    const double hidden = rows_ * static_cast<double>(model_.options().hidden_dim) *
                          static_cast<double>(model_.compute_bytes) / machine_.element_per_s;
    costs.before.forward += 2 * hidden + gap();
    if (!ways_.is_private) {
      for (const PlannedLayer& layer : model_.before)
        if (!layer.is_matrix && layer.trained)
          costs.before.backward +=
              2 * hidden +
              static_cast<double>(model_.sum_bytes * layer.weight) / machine_.element_per_s;
    }
    for (size_t i = 0; i < model_.before.size(); ++i)
      if (ways_.is_private && !model_.before[i].is_matrix && model_.before[i].trained)
        costs.before.sums += static_cast<double>(model_.sum_bytes * model_.before[i].weight) /
                             machine_.element_per_s;
    costs.behind.forward += 2 * hidden;
    costs.behind.backward += 4 * hidden;
    // Scores are read for the loss, and their gradient takes their place.
    const double scores = static_cast<double>(model_.kept.outside) * rows_ / machine_.element_per_s;
    costs.behind.forward += scores + 4 * gap();
    costs.behind.backward += 2 * scores + 4 * gap();
  }

  const PlannedModel& model_;
  const EngineWays& ways_;
  const MachineProfile& machine_;
  const DtypeRates& rates_;
  bool casts_;
  double samples_, rows_;
};

}  // namespace

StepCosts step_costs(const PlannedModel& model, const EngineWays& ways, int64_t samples, bool casts,
                     const MachineProfile& machine) {
  return Costs(model, ways, samples, casts, machine).all();
}

double update_seconds(const PlannedModel& model, const MachineProfile& machine, double elements,
                      int states, int state_bytes, double row_bytes, bool noise) {
  const auto value = static_cast<double>(model.value_bytes);
  const double gradient = row_bytes > 0 ? row_bytes : static_cast<double>(model.sum_bytes);
  const double state = state_bytes > 0 ? 2 * state_bytes + kRounded : 2 * value;
  const double bytes = 2 * value + gradient + state * states;
  return elements *
         (bytes / machine.update_per_s + (noise ? kNoiseShown / machine.noise_per_s : 0));
}

}  // namespace moonshard::plan
