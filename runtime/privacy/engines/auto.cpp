// Engine "auto": per layer the cheapest plan by the formulas of norm_cost.h. Without a memory
// budget it never runs backward twice. With one it takes the fastest plan that fits, then the
// smallest, and when even that does not fit it keeps nothing and pays a second backward pass.
#include "runtime/privacy/engines/engines.h"
#include "runtime/privacy/norm_cost.h"

namespace moonshard::privacy {
namespace {

bool is_matrix(const models::ParamLayer& layer) {
  return layer.kind == models::kinds::kLinear || layer.kind == models::kinds::kPatchEmbedding;
}

class AutoEngine : public NormEngine {
 public:
  AutoEngine(const ClipOptions& options, std::shared_ptr<Clipping> clipping)
      : NormEngine(std::move(clipping)), options_(options) {}
  const char* name() const override { return "auto"; }

 protected:
  Keep plan_keep(const models::Model& model, const MicroBatch& micro) override {
    const double budget = static_cast<double>(options_.memory_budget_mb) * 1048576.0;
    goal_ = Goal::Time;
    if (budget == 0 || predicted_bytes(model, micro) <= budget) return Keep::Inputs;
    goal_ = Goal::Memory;
    if (predicted_bytes(model, micro) <= budget) return Keep::Inputs;
    goal_ = Goal::SecondPass;
    return Keep::Nothing;
  }

  LayerPlan plan_layer(const models::ParamLayer& layer, const at::Tensor& a,
                       const at::Tensor& g) override {
    const LayerShape shape = shape_of(a, g);
    LayerPlan plan;
    plan.norm.tile_size = options_.tile_size;
    plan.norm.method = cheapest_norm(shape);
    plan.keep = goal_ == Goal::SecondPass ? Keep::Nothing : keep_of(layer, shape);
    return plan;
  }

 private:
  enum class Goal { Time, Memory, SecondPass };

  NormMethod cheapest_norm(const LayerShape& shape) const {
    if (options_.flash_algorithm != "auto") return choose_flash(shape, options_.flash_algorithm);
    // One product is faster than many small ones while its T x T result is a small thing.
    const double matrix_bytes = shape.positions * shape.positions * 8;
    const double flash = std::min(input_length_cost(shape), width_cost(shape));
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

  Keep keep_of(const models::ParamLayer& layer, const LayerShape& shape) const {
    if (is_shared(layer)) return Keep::Inputs;
    if (has_small_gradient(layer)) return Keep::Gradients;
    if (!is_matrix(layer) || shape.positions == 1) return Keep::Inputs;
    if (goal_ == Goal::Memory) {
      return kept_gradients_bytes(shape) < kept_inputs_bytes(shape) ? Keep::Gradients
                                                                    : Keep::Inputs;
    }
    return keep_gradients_cost(shape) < norm_cost(shape) + sum_inputs_cost(shape) ? Keep::Gradients
                                                                                  : Keep::Inputs;
  }

  // Before the forward pass positions are known only as the model's tokens. A layer that runs on
  // fewer (a classification head) is over-estimated, which errs on the safe side.
  double predicted_bytes(const models::Model& model, const MicroBatch& micro) {
    double total = 0;
    for (const auto& layer : model.layers()) {
      if (!layer->trainable()) continue;
      const at::Tensor& weight = layer->weight->value;
      const double rows = static_cast<double>(weight.size(0));
      const double columns = static_cast<double>(weight.numel()) / rows;
      const bool matrix = is_matrix(*layer);
      const LayerShape shape{
          static_cast<double>(std::max(micro.samples, micro.most_samples)),
          static_cast<double>(std::max(micro.tokens_per_sample, micro.most_tokens_per_sample)),
          columns,
          matrix ? rows : columns,
          static_cast<double>(c10::elementSize(layer->seam->compute_type)),
          layer->seam->anchor.is_cuda()};
      total += keep_of(*layer, shape) == Keep::Gradients && !has_small_gradient(*layer)
                   ? kept_gradients_bytes(shape)
                   : kept_inputs_bytes(shape);
    }
    return total;
  }

  ClipOptions options_;
  Goal goal_ = Goal::Time;
};

}  // namespace

std::unique_ptr<ClipEngine> make_auto_engine(const ClipOptions& options,
                                             std::shared_ptr<Clipping> clipping) {
  return std::make_unique<AutoEngine>(options, std::move(clipping));
}

}  // namespace moonshard::privacy
