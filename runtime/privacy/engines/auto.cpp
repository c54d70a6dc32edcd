// Engine "auto": a small knapsack. Every linear layer has two ways that need one backward pass: its
// norm by the cheaper kernel with (a, g) kept for the sum, or each sample's gradient kept. Times
// and bytes come from the formulas of norm_cost.h; the smallest set of ways is the start, and
// layers change to their faster way in the order of time saved per byte while the budget lasts.
// Where even the smallest does not fit, nothing is kept and backward runs twice.
#include <algorithm>

#include "kernels/common/choice.h"
#include "runtime/privacy/engines/engines.h"
#include "runtime/privacy/joined_by_references.h"
#include "runtime/privacy/layer_rules/rules.h"
#include "runtime/privacy/norm_cost.h"

namespace moonshard::privacy {
namespace {

class AutoEngine : public NormEngine {
 public:
  AutoEngine(const ClipOptions& options, std::shared_ptr<Clipping> clipping)
      : NormEngine(std::move(clipping)), options_(options) {}
  const char* name() const override { return "auto"; }

 protected:
  Keep plan_keep(const models::Model& model, const MicroBatch& micro) override {
    keeps_rows_.assign(model.layers().size(), false);
    std::vector<Upgrade> upgrades;
    double total = 0;
    for (const auto& layer : model.layers()) {
      if (!layer->trainable()) continue;
      const LayerShape shape = predicted_shape(*layer, micro);
      const double inputs = kept_inputs_bytes(shape);
      if (!may_keep_rows(*layer, shape)) {
        total += inputs;
        continue;
      }
      const double rows = rows_bytes(shape);
      const bool rows_are_faster = rows_cost(shape) < norm_cost(shape) + sum_inputs_cost(shape);
      keeps_rows_[layer->index] = rows < inputs;
      total += std::min(rows, inputs);
      if (rows_are_faster == (rows < inputs)) continue;
      const double saved = std::abs(rows_cost(shape) - norm_cost(shape) - sum_inputs_cost(shape));
      upgrades.push_back({layer->index, std::abs(rows - inputs), saved});
    }
    const double budget = budget_bytes(model);
    if (options_.memory_budget_mb > 0 && total > budget) {
      second_pass_ = true;
      return Keep::Nothing;
    }
    second_pass_ = false;
    std::stable_sort(upgrades.begin(), upgrades.end(), [](const Upgrade& x, const Upgrade& y) {
      return x.saved * y.bytes > y.saved * x.bytes;
    });
    for (const Upgrade& upgrade : upgrades) {
      if (total + upgrade.bytes > budget) continue;
      total += upgrade.bytes;
      keeps_rows_[upgrade.layer] = !keeps_rows_[upgrade.layer];
    }
    return Keep::Inputs;
  }

  LayerPlan plan_layer(const models::ParamLayer& layer, const at::Tensor& a,
                       const at::Tensor& g) override {
    const LayerShape shape = shape_at(layer, a, g);
    LayerPlan plan;
    plan.norm.tile_size = options_.tile_size;
    plan.norm.method = cheapest_norm(shape);
    plan.compact = shape.by_kernel && keeps_compact(g);
    plan.keep = second_pass_                                      ? Keep::Nothing
                : is_shared(layer)                                ? Keep::Inputs
                : has_small_gradient(layer)                       ? Keep::Gradients
                : keeps_rows_[layer.index] && shape.positions > 1 ? Keep::Gradients
                                                                  : Keep::Inputs;
    return plan;
  }

 private:
  struct Upgrade {
    uint32_t layer;
    double bytes, saved;
  };

  NormMethod cheapest_norm(const LayerShape& shape) const {
    if (options_.flash_algorithm != "auto") return choose_flash(shape, options_.flash_algorithm);
    // One product is faster than many small ones while its T x T result is a small thing. The
    // kernels have no such result.
    const double matrix_bytes = shape.by_kernel ? 0 : shape.positions * shape.positions * 8;
    const double flash =
        shape.by_kernel ? width_cost(shape) : std::min(input_length_cost(shape), width_cost(shape));
    if (ghost_cost(shape) < flash && matrix_bytes < 16e6) return NormMethod::Ghost;
    return choose_flash(shape, "auto");
  }

  double norm_cost(const LayerShape& shape) const {
    switch (cheapest_norm(shape)) {
      case NormMethod::Ghost:
        return ghost_cost(shape);
      case NormMethod::InputLength:
        return input_length_cost(shape);
      default:
        return width_cost(shape);
    }
  }

  static double rows_cost(const LayerShape& shape) {
    return shape.by_kernel ? keep_compact_cost(shape) : keep_gradients_cost(shape);
  }
  static double rows_bytes(const LayerShape& shape) {
    return shape.by_kernel ? kept_compact_bytes(shape) : kept_gradients_bytes(shape);
  }
  bool may_keep_rows(const models::ParamLayer& layer, const LayerShape& shape) const {
    return is_matrix(layer) && !is_shared(layer) && shape.positions > 1;
  }

  // Half of what a GPU has beside the weights and one more copy of them; elsewhere no limit.
  double budget_bytes(const models::Model& model) const {
    if (options_.memory_budget_mb > 0)
      return static_cast<double>(options_.memory_budget_mb) * 1048576.0;
    const at::Tensor& anchor = const_cast<models::Model&>(model).seam().anchor;
    if (!anchor.is_cuda()) return 1e300;
    double parameters = 0;
    for (const auto& parameter : model.parameters())
      parameters += static_cast<double>(parameter->value.nbytes());
    const double all = static_cast<double>(kernels::memory_around(anchor));
    return all == 0 ? 1e300 : std::max(0.0, (all - 2 * parameters) / 2);
  }

  // Before the forward pass positions are known only as the model's tokens. A layer that runs on
  // fewer (a classification head) is over-estimated, which errs on the safe side.
  LayerShape predicted_shape(const models::ParamLayer& layer, const MicroBatch& micro) const {
    const at::Tensor& weight = layer.weight->value;
    const double rows = static_cast<double>(weight.size(0));
    const double columns = static_cast<double>(weight.numel()) / rows;
    const at::Tensor& anchor = layer.seam->anchor;
    const at::ScalarType format = layer.seam->compute_type;
    LayerShape shape{
        static_cast<double>(std::max(micro.samples, micro.most_samples)),
        static_cast<double>(std::max(micro.tokens_per_sample, micro.most_tokens_per_sample)),
        columns,
        is_matrix(layer) ? rows : columns,
        static_cast<double>(c10::elementSize(format)),
        anchor.is_cuda()};
    shape.by_kernel = is_matrix(layer) &&
                      (format == at::kBFloat16 || (format == at::kFloat && stands_in(anchor))) &&
                      !is_shared(layer) && weight.size(0) % 8 == 0 &&
                      (weight.numel() / weight.size(0)) % 8 == 0 && has_built_in_rule(layer) &&
                      keeps_compact(anchor);
    return shape;
  }

  // Only the Hopper kernel keeps rows in 16 bits. Elsewhere they are kept as they are, so that what
  // is planned before the forward pass goes by the plain costs.
  static bool keeps_compact(const at::Tensor& like) {
    return stands_in(like) || kernels::variant_of("flash_norm", like) == kernels::Variant::Hopper;
  }

  ClipOptions options_;
  std::vector<bool> keeps_rows_;  ///< by layer index
  bool second_pass_ = false;
};

}  // namespace

std::unique_ptr<ClipEngine> make_auto_engine(const ClipOptions& options,
                                             std::shared_ptr<Clipping> clipping) {
  return std::make_unique<AutoEngine>(options, std::move(clipping));
}

}  // namespace moonshard::privacy
