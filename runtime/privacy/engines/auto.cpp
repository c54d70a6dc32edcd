// Engine "auto". Linear layers that read one input have two ways that need one backward pass: their
// norms by the cheaper kernel with (a, g) kept for the sum, or each sample's gradients kept. Times
// are measured where kernels run (timed_ways.h), or come from the formulas of norm_cost.h, as bytes
// do; way_choice.h decides by them within a budget, and plan_trial.h lets whole steps confirm it.
// Where even the smallest ways do not fit, nothing is kept and backward runs twice.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/common/choice.h"
#include "runtime/privacy/engines/engines.h"
#include "runtime/privacy/joined_by_references.h"
#include "runtime/privacy/layer_rules/rules.h"
#include "runtime/privacy/norm_cost.h"
#include "runtime/privacy/plan_trial.h"
#include "runtime/privacy/timed_ways.h"
#include "runtime/privacy/way_choice.h"
#include "runtime/profile/kernel_timer.h"

namespace moonshard::privacy {
namespace {

class AutoEngine : public NormEngine {
 public:
  AutoEngine(const ClipOptions& options, std::shared_ptr<Clipping> clipping)
      : NormEngine(std::move(clipping)), options_(options) {}
  const char* name() const override { return "auto"; }
  bool tries_plans() const override { return trial_.is_open(); }
  bool takes_other_plan() const override { return trial_.takes_other(); }
  void observe_step(const ObservedStep& step) override { trial_.observe(step); }

 protected:
  Keep plan_keep(const models::Model& model, const MicroBatch& micro) override {
    keeps_rows_.assign(model.layers().size(), false);
    ghost_is_faster_.clear();
    Units units;
    WayBudget budget;
    for (const auto& layer : model.layers()) {
      if (!layer->trainable()) continue;
      const LayerShape shape = predicted_shape(*layer, micro);
      if (has_trained_bias(*layer)) budget.always_kept += shape.samples * shape.out * kRowBytes;
      if (!may_keep_rows(*layer, shape)) {
        budget.always_kept += always_kept_bytes(*layer, shape);
        continue;
      }
      const models::ParamLayer* first = layer->same_input_as;
      Unit& unit = units[first != nullptr ? first->index : layer->index];
      unit.layers.push_back(layer->index);
      unit.shape.samples = static_cast<int64_t>(shape.samples);
      unit.shape.positions = static_cast<int64_t>(shape.positions);
      unit.shape.in = static_cast<int64_t>(shape.in);
      unit.shape.out.push_back(static_cast<int64_t>(shape.out));
      unit.by_kernel = unit.by_kernel && shape.by_kernel;
      unit.ways.inputs.add(kept_inputs_bytes(shape), norm_cost(shape) + sum_inputs_cost(shape));
      unit.ways.rows.add(rows_bytes(shape), rows_cost(shape));
    }
    const at::Tensor& anchor = const_cast<models::Model&>(model).seam().anchor;
    std::vector<WaysOfReaders*> ways;
    bool all_timed = true;
    for (auto& [first, unit] : units) {
      const auto times = times_of(unit, anchor);
      all_timed = all_timed && times.has_value();
      if (times) {
        unit.ways.inputs.cost = times->inputs();
        unit.ways.rows.cost = times->rows(micro.needs_sums);
        for (const uint32_t layer : unit.layers)
          ghost_is_faster_[layer] = times->ghost < times->flash;
      }
      ways.push_back(&unit.ways);
    }
    budget.bytes = budget_bytes(model);
    budget.must_hold = options_.memory_budget_mb > 0;
    second_pass_ = !choose_ways(ways, budget);
    if (second_pass_) return Keep::Nothing;
    if (all_timed) try_other_plan(units, ways, micro, anchor);
    for (const auto& [first, unit] : units)
      for (const uint32_t layer : unit.layers) keeps_rows_[layer] = unit.ways.keeps_rows;
    return Keep::Inputs;
  }

  LayerPlan plan_layer(const models::ParamLayer& layer, const at::Tensor& a,
                       const at::Tensor& g) override {
    const LayerShape shape = shape_at(layer, a, g, readers(layer));
    LayerPlan plan;
    plan.norm.tile_size = options_.tile_size;
    const auto timed = ghost_is_faster_.find(layer.index);
    plan.norm.method = timed == ghost_is_faster_.end() || options_.flash_algorithm != "auto"
                           ? cheapest_norm(shape)
                       : timed->second ? NormMethod::Ghost
                                       : NormMethod::Width;
    plan.compact = shape.by_kernel && keeps_compact_rows(a, g);
    plan.keep = second_pass_                                      ? Keep::Nothing
                : is_shared(layer)                                ? Keep::Inputs
                : has_small_gradient(layer)                       ? Keep::Gradients
                : keeps_rows_[layer.index] && shape.positions > 1 ? Keep::Gradients
                                                                  : Keep::Inputs;
    return plan;
  }

 private:
  // Layers that read one input.
  struct Unit {
    std::vector<uint32_t> layers;
    UnitShape shape;
    bool by_kernel = true;
    WaysOfReaders ways;
  };
  using Units = std::map<uint32_t, Unit>;  // by the first layer that reads the input

  // Tried, or found before, for batches of the first one's size. With per_layer clipping nothing
  // waits for factors: all plans are one.
  void try_other_plan(const Units& units, const std::vector<WaysOfReaders*>& ways,
                      const MicroBatch& micro, const at::Tensor& anchor) {
    if (options_.clipping == "per_layer") return;
    const auto other = other_plan(ways);
    if (!other) return;
    const UnitShape& shape = units.begin()->second.shape;
    const std::pair size(shape.samples, shape.positions);
    if (!tried_size_) tried_size_ = size;
    if (*tried_size_ != size) return;
    if (micro.rank == 0 && !trial_.was_opened())
      trial_.open(profile::machine_of(anchor.device()), text_of_plans(units, *other, micro));
    if (!(micro.ranks > 1 ? micro.takes_other_plan : trial_.takes_other())) return;
    for (size_t i = 0; i < ways.size(); ++i) ways[i]->keeps_rows = (*other)[i];
  }

  // All that steps under one plan and the other depend on.
  static std::string text_of_plans(const Units& units, const std::vector<bool>& other,
                                   const MicroBatch& micro) {
    std::vector<UnitShape> shapes;
    std::vector<std::string> plans;
    for (const auto& [first, unit] : units) {
      const bool own = unit.ways.keeps_rows;
      plans.push_back(own ? "rows" : "inputs");
      if (own != other[shapes.size()]) plans.back() += own ? " or inputs" : " or rows";
      shapes.push_back(unit.shape);
    }
    std::string text = text_of(shapes, plans);
    if (micro.needs_sums) text += "; summed";
    if (micro.count > 1) text += fmt::format("; {} micro-batches", micro.count);
    if (micro.ranks > 1) text += fmt::format("; {} ranks", micro.ranks);
    return text;
  }

  // Batches of other sizes take the times of the first, by their share: Poisson sampling draws a
  // new size in every step. Deterministic runs plan by formulas, the same on every machine.
  std::optional<WayTimes> times_of(const Unit& unit, const at::Tensor& anchor) {
    constexpr size_t kMostShapes = 32;
    const bool can_be_timed = anchor.is_cuda() || is_timed_in_place(anchor);
    if (!can_be_timed || !unit.by_kernel || at::globalContext().deterministicAlgorithms())
      return {};
    std::vector<int64_t> key = unit.shape.out;
    key.insert(key.end(), {unit.shape.in, unit.shape.positions});
    auto known = times_.find(key);
    if (known == times_.end()) {
      if (times_.size() >= kMostShapes) return {};
      known = times_.emplace(key, Timed{unit.shape.samples, timed_ways(unit.shape, anchor)}).first;
    }
    if (!known->second.times) return {};
    return known->second.times->scaled(static_cast<double>(unit.shape.samples) /
                                       static_cast<double>(known->second.samples));
  }

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

  // Of what has no choice.
  static double always_kept_bytes(const models::ParamLayer& layer, const LayerShape& shape) {
    if (has_small_gradient(layer)) return shape.samples * shape.out * kRowBytes;
    if (layer.by_samples) return kept_gradients_bytes(shape);
    if (layer.kind == models::kinds::kPositionTable)  // its output gradient
      return shape.samples * static_cast<double>(layer.weight->value.numel()) * shape.element_bytes;
    if (layer.kind == models::kinds::kEmbedding)
      return shape.samples * shape.positions * (shape.out * shape.element_bytes + kIdBytes);
    return kept_inputs_bytes(shape);
  }
  static constexpr double kRowBytes = 4, kIdBytes = 8;

  static double rows_cost(const LayerShape& shape) {
    return has_compact_rows(shape) ? keep_compact_cost(shape) + read_compact_cost(shape)
                                   : keep_gradients_cost(shape);
  }
  static double rows_bytes(const LayerShape& shape) {
    return has_compact_rows(shape) ? kept_compact_bytes(shape) : kept_gradients_bytes(shape);
  }
  bool may_keep_rows(const models::ParamLayer& layer, const LayerShape& shape) const {
    return is_matrix(layer) && !is_shared(layer) && !layer.by_samples && shape.positions > 1 &&
           (!shape.by_kernel || has_compact_rows(shape));
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

  // Before the forward pass positions are known only as the model's tokens, and one per sample
  // where the layer says so. A layer that runs on fewer is over-estimated, which errs on the safe
  // side.
  LayerShape predicted_shape(const models::ParamLayer& layer, const MicroBatch& micro) const {
    const at::Tensor& weight = layer.weight->value;
    const double rows = static_cast<double>(weight.size(0));
    const double columns = static_cast<double>(weight.numel()) / rows;
    const at::Tensor& anchor = layer.seam->anchor;
    const at::ScalarType format = layer.compute_type();
    LayerShape shape{
        static_cast<double>(std::max(micro.samples, micro.most_samples)),
        layer.one_position
            ? 1
            : static_cast<double>(std::max(micro.tokens_per_sample, micro.most_tokens_per_sample)),
        columns,
        is_matrix(layer) ? rows : columns,
        static_cast<double>(c10::elementSize(format)),
        anchor.is_cuda()};
    shape.readers = static_cast<double>(readers(layer));
    shape.by_kernel = is_matrix(layer) &&
                      (format == at::kBFloat16 || (format == at::kFloat && stands_in(anchor))) &&
                      !is_shared(layer) && weight.size(0) % 8 == 0 &&
                      (weight.numel() / weight.size(0)) % 8 == 0 && has_built_in_rule(layer) &&
                      keeps_compact(anchor);  // else what is planned here goes by the plain costs
    return shape;
  }

  ClipOptions options_;
  struct Timed {
    int64_t samples;  ///< that were timed
    std::optional<WayTimes> times;
  };
  std::map<std::vector<int64_t>, Timed> times_;  ///< by the shape of one sample
  std::map<uint32_t, bool> ghost_is_faster_;     ///< by layer index, where it was timed
  std::vector<bool> keeps_rows_;                 ///< by layer index
  bool second_pass_ = false;
  PlanTrial trial_;  ///< the first rank's alone is ever opened
  std::optional<std::pair<int64_t, int64_t>> tried_size_;  ///< samples and positions
};

}  // namespace

std::unique_ptr<ClipEngine> make_auto_engine(const ClipOptions& options,
                                             std::shared_ptr<Clipping> clipping) {
  return std::make_unique<AutoEngine>(options, std::move(clipping));
}

}  // namespace moonshard::privacy
