#include "runtime/plan/engine_ways.h"

#include <algorithm>
#include <map>

#include "runtime/privacy/norm_cost.h"

namespace moonshard::plan {
namespace {

using privacy::LayerShape;
using privacy::NormMethod;

using privacy::kCompactBytes;

constexpr double kSumBytes = 4;
// Compact rows that are summed up, of the bytes per second of element-wise kernels: by timings of
// privacy/timed_ways.cpp on an H200.
constexpr double kSummedRows = 0.65;
// Of a weight in halves, read and written.
constexpr double kValueBytes = 8;

// Layers that read one input keep the same.
struct Readers {
  std::vector<LayerWay*> ways;
  std::vector<const PlannedLayer*> layers;
  double inputs_bytes = 0, rows_bytes = 0, inputs_s = 0, rows_s = 0;
  double smaller() const { return std::min(inputs_bytes, rows_bytes); }
  bool rows_are_smaller() const { return rows_bytes < inputs_bytes; }
  double more_bytes() const { return std::max(inputs_bytes, rows_bytes) - smaller(); }
  double larger_s() const { return rows_are_smaller() ? inputs_s : rows_s; }
  double smaller_s() const { return rows_are_smaller() ? rows_s : inputs_s; }
  double saved_s() const { return smaller_s() - larger_s(); }
};

class Ways {
 public:
  Ways(const PlannedModel& model, const EngineSituation& situation, const MachineProfile& machine)
      : model_(model),
        situation_(situation),
        machine_(machine),
        rates_(machine.rates(model.compute_bytes == 2 ? "bfloat16" : "float32")) {}

  EngineWays all() {
    EngineWays ways;
    const std::string& mode = situation_.mode;
    ways.is_private = mode != "none";
    for (const auto& [layers, list] : {std::pair{&model_.before, &ways.before},
                                       {&model_.block, &ways.block},
                                       {&model_.behind, &ways.behind}}) {
      list->resize(layers->size());
      for (size_t i = 0; i < layers->size(); ++i)
        if (ways.is_private) set_way((*layers)[i], (*list)[i]);
    }
    if (!ways.is_private) return ways;
    ways.two_passes = is_of_two_passes();
    if (mode == "auto") choose(ways);
    if (mode == "flash_bookkeeping" && situation_.flash_algorithm == "auto") keep_smaller(ways);
    if (ways.two_passes || situation_.per_layer)
      for (auto* list : {&ways.before, &ways.block, &ways.behind})
        for (LayerWay& way : *list) way.kept = Kept::Nothing;
    ways.two_passes = ways.two_passes && !situation_.per_layer;
    return ways;
  }

 private:
  double samples() const { return static_cast<double>(situation_.samples); }
  bool is_of_two_passes() const { return situation_.mode == "ghost" || situation_.mode == "flash"; }

  LayerShape shape_of(const PlannedLayer& layer) const {
    LayerShape shape{samples(),
                     layer.one_position ? 1 : static_cast<double>(model_.tokens),
                     static_cast<double>(layer.in),
                     static_cast<double>(layer.out),
                     static_cast<double>(model_.compute_bytes),
                     machine_.is_gpu};
    shape.readers = static_cast<double>(layer.readers);
    shape.by_kernel = by_kernel(layer);
    return shape;
  }

  bool by_kernel(const PlannedLayer& layer) const {
    return machine_.is_gpu && model_.compute_bytes == 2 && layer.is_matrix && layer.trained &&
           layer.in % 8 == 0 && layer.out % 8 == 0;
  }

  // How much slower kernels are on small layers: as products are.
  double share(const LayerShape& shape) const {
    // Kernels join the layers of a block: a narrow one does not leave the device idle.
    constexpr double kJoined = 0.35;
    const double part = product_share(rates_, shape.out, shape.in, shape.samples * shape.positions);
    return shape.by_kernel ? std::max(part, kJoined) : part;
  }
  double product_s(const LayerShape& shape) const {
    return 2 * shape.samples * shape.positions * shape.in * shape.out / (rates_.sum * share(shape));
  }

  // Operands are read once at least; samples of one position have a kernel of their own, without
  // tensor cores (kernels/clipped_sum/clipped_sum_outer.cu).
  double kernel_sum_s(const PlannedLayer& layer, const LayerShape& shape) const {
    const double store = kSumBytes * static_cast<double>(layer.weight) / machine_.element_per_s;
    if (shape.positions <= 1) {
      const DtypeRates& wide = machine_.rates("float32");
      return 2 * shape.samples * shape.in * shape.out / (wide.sum * machine_.in_step.outer_sum) +
             store;
    }
    return std::max(product_s(shape), read_s(shape)) + store;
  }

  // Of (a, g) by a kernel that does little else: an adapter's few columns leave its tiles half
  // empty.
  double read_s(const LayerShape& shape) const {
    constexpr double kNarrow = 2;
    return kNarrow * shape.samples * shape.positions * (shape.in + shape.out) *
           shape.element_bytes / machine_.element_per_s;
  }

  // Products of positions with positions: as deep as the layer is wide, however narrow one side is.
  double gram_share(const LayerShape& shape) const {
    if (!shape.by_kernel) return share(shape);
    return product_share(rates_, shape.samples * shape.positions, shape.positions,
                         shape.in + shape.out);
  }
  double ghost_s(const LayerShape& shape) const {
    return privacy::ghost_cost(shape) / (rates_.ghost * gram_share(shape));
  }
  double width_s(const LayerShape& shape) const {
    const double seconds = privacy::width_cost(shape) / (rates_.flash * share(shape));
    return shape.by_kernel ? std::max(seconds, read_s(shape)) : seconds;
  }

  // Seconds of a norm by the engine's own choice of method.
  double norm_s(const LayerShape& shape) const {
    const double part = share(shape);
    const double ghost = ghost_s(shape), width = width_s(shape);
    const std::string& mode = situation_.mode;
    if (mode == "materialize") return privacy::keep_gradients_cost(shape) / (rates_.keep * part);
    if (mode == "ghost" || mode == "bookkeeping") return ghost;
    if (mode == "auto") return std::min(ghost, width);
    return privacy::choose_flash(shape, situation_.flash_algorithm) == NormMethod::Width
               ? width
               : privacy::input_length_cost(shape) / (rates_.ghost * gram_share(shape));
  }

  void set_way(const PlannedLayer& layer, LayerWay& way) const {
    if (!layer.trained && layer.bias == 0) return;
    const LayerShape shape = shape_of(layer);
    const double width = static_cast<double>(layer.is_matrix ? layer.out : layer.in);
    if (layer.is_small) {
      way.kept = Kept::Rows;
      way.rows_bytes = samples() * static_cast<double>(layer.weight + layer.bias) * kSumBytes;
      return;
    }
    if (!layer.is_matrix && layer.is_shared && head_is_chunked()) {
      way.kept = Kept::Rows;  // added to the head's, in place
      return;
    }
    if (!layer.is_matrix && situation_.mode == "materialize") return set_rows(layer, way);
    if (!layer.is_matrix) {  // tables: the output's gradient is read and sorted
      way.kept = Kept::Inputs;
      way.norm_s = 3 * shape.samples * shape.positions * width * shape.element_bytes /
                   machine_.element_per_s;
      way.sum_s = way.norm_s;
      return;
    }
    if (layer.by_samples) return set_samples(layer, shape, way);
    way.joins = by_kernel(layer) && !layer.is_shared;
    way.norm_s = norm_s(shape);
    // By kernels the float32 sum is stored once; the update's time has the reading.
    way.sum_s = shape.by_kernel ? kernel_sum_s(layer, shape)
                                : privacy::sum_inputs_cost(shape) / (rates_.sum * share(shape));
    way.kept = Kept::Inputs;
    way.rows_bytes =
        samples() * static_cast<double>(layer.weight) *
        (way.joins ? kCompactBytes
                   : std::max<double>(kSumBytes, static_cast<double>(model_.compute_bytes)));
    way.compact = way.joins;
    if (situation_.mode == "materialize") set_rows(layer, way);
  }

  // Every sample's gradient, in full; one rank's update reads it as it is.
  void set_rows(const PlannedLayer& layer, LayerWay& way) const {
    way.kept = Kept::Rows;
    way.joins = false;
    way.compact = machine_.is_gpu;
    way.rows_bytes = samples() * static_cast<double>(layer.weight) *
                     std::max<double>(kSumBytes, static_cast<double>(model_.compute_bytes));
    const bool is_summed = situation_.needs_sums || !way.compact;
    way.sum_s = is_summed ? way.rows_bytes / machine_.element_per_s : 0;
  }

  // A head in chunks: plain products, which a second pass has again, and rows read for the norm.
  void set_samples(const PlannedLayer& layer, const LayerShape& shape, LayerWay& way) const {
    set_rows(layer, way);
    const double product =
        product_seconds(rates_, shape.out, shape.in, shape.samples * shape.positions) /
        machine_.in_step.products;
    way.norm_s = product + way.rows_bytes / machine_.element_per_s;
    if (is_of_two_passes() && !situation_.per_layer) way.sum_s += product;
  }
  bool head_is_chunked() const {
    return std::ranges::any_of(model_.behind, &PlannedLayer::by_samples);
  }

  double rows_norm_s(const LayerShape& shape) const {
    const double cost =
        shape.by_kernel ? privacy::keep_compact_cost(shape) : privacy::keep_gradients_cost(shape);
    const double seconds = cost / (rates_.keep * share(shape));
    return shape.by_kernel ? std::max(seconds, read_s(shape)) : seconds;
  }

  double sum_rows_s(const PlannedLayer& layer, const LayerWay& way) const {
    return (way.rows_bytes / (machine_.is_gpu ? kSummedRows : 1) +
            kSumBytes * static_cast<double>(layer.weight)) /
           machine_.element_per_s;
  }

  void take_rows(const PlannedLayer& layer, LayerWay& way) const {
    way.kept = Kept::Rows;
    way.norm_s = rows_norm_s(shape_of(layer));
    way.sum_s = situation_.needs_sums || !way.compact ? sum_rows_s(layer, way) : 0;
  }

  template <class Visit>
  void visit(EngineWays& ways, const Visit& each) const {
    for (const auto& [layers, list, times] :
         {std::tuple{&model_.before, &ways.before, int64_t{1}},
          {&model_.block, &ways.block, model_.blocks_in_backward()},
          {&model_.behind, &ways.behind, int64_t{1}}}) {
      std::map<size_t, Readers> readers;
      for (size_t i = 0; i < layers->size(); ++i) {
        const PlannedLayer& layer = (*layers)[i];
        if (!layer.is_matrix || !layer.trained || layer.is_shared || layer.one_position ||
            layer.by_samples || model_.tokens <= 1)
          continue;
        if (by_kernel(layer) && !privacy::has_compact_rows(shape_of(layer))) continue;
        Readers& unit = readers[layer.input];
        unit.ways.push_back(&(*list)[i]);
        unit.layers.push_back(&layer);
      }
      for (auto& [input, unit] : readers) each(unit, times);
    }
  }

  // flash_bookkeeping: compact rows where they are smaller (privacy::keep_the_smaller).
  void keep_smaller(EngineWays& ways) const {
    visit(ways, [&](Readers& unit, int64_t) {
      const double positions = samples() * static_cast<double>(model_.tokens);
      const double element = static_cast<double>(model_.compute_bytes);
      double all_rows = 0,
             with_input = positions * static_cast<double>(unit.layers[0]->in) * element;
      for (size_t i = 0; i < unit.ways.size(); ++i) {
        if (!unit.ways[i]->joins) return;
        const double g = positions * static_cast<double>(unit.layers[i]->out) * element;
        all_rows += unit.ways[i]->rows_bytes;
        with_input += std::min(unit.ways[i]->rows_bytes, g);
      }
      for (size_t i = 0; i < unit.ways.size(); ++i) {
        const double g = positions * static_cast<double>(unit.layers[i]->out) * element;
        if (all_rows < with_input || unit.ways[i]->rows_bytes < g)
          take_rows(*unit.layers[i], *unit.ways[i]);
      }
    });
  }

  // auto: the smallest set of ways, then the faster ones while the budget lasts. Its own timings
  // decide by differences that rates may not tell: what fits must do so with `at_most`.
  void choose(EngineWays& ways) const {
    struct Upgrade {
      Readers unit;
      int64_t times = 1;
    };
    std::vector<Upgrade> upgrades;
    double total = 0;
    visit(ways, [&](Readers& unit, int64_t times) {
      for (size_t i = 0; i < unit.ways.size(); ++i) {
        const LayerShape shape = shape_of(*unit.layers[i]);
        const double weight = static_cast<double>(unit.layers[i]->weight);
        // As timed_ways.cpp has it: with the pass over value and gradient, or kept rows.
        const double value = kValueBytes * weight / machine_.update_per_s;
        const double store = kSumBytes * weight / machine_.update_per_s + value;
        unit.inputs_bytes += privacy::kept_inputs_bytes(shape);
        unit.rows_bytes += unit.ways[i]->rows_bytes;
        unit.inputs_s += unit.ways[i]->norm_s + unit.ways[i]->sum_s + store;
        unit.rows_s += rows_norm_s(shape);
        unit.rows_s += situation_.needs_sums
                           ? sum_rows_s(*unit.layers[i], *unit.ways[i]) + store
                           : unit.ways[i]->rows_bytes / machine_.update_per_s + value;
      }
      if (unit.rows_are_smaller()) to_rows(unit);
      total += unit.smaller() * static_cast<double>(times);
      if (situation_.at_most || unit.larger_s() < (1 - privacy::kWorthMemory) * unit.smaller_s())
        upgrades.push_back({unit, times});
    });
    if (situation_.budget_is_asked && total > situation_.budget_bytes) {
      ways.two_passes = true;
      return;
    }
    std::stable_sort(upgrades.begin(), upgrades.end(), [](const Upgrade& x, const Upgrade& y) {
      return x.unit.saved_s() * y.unit.more_bytes() > y.unit.saved_s() * x.unit.more_bytes();
    });
    for (Upgrade& upgrade : upgrades) {
      // Blocks are alike: the runtime would upgrade some of them, a plan all or none.
      const double more = upgrade.unit.more_bytes() * static_cast<double>(upgrade.times);
      if (total + more > situation_.budget_bytes) continue;
      total += more;
      if (!upgrade.unit.rows_are_smaller()) {
        to_rows(upgrade.unit);
        continue;
      }
      for (size_t i = 0; i < upgrade.unit.ways.size(); ++i) {
        *upgrade.unit.ways[i] = {};
        set_way(*upgrade.unit.layers[i], *upgrade.unit.ways[i]);
      }
    }
  }

  void to_rows(Readers& unit) const {
    for (size_t i = 0; i < unit.ways.size(); ++i) take_rows(*unit.layers[i], *unit.ways[i]);
  }

  const PlannedModel& model_;
  const EngineSituation& situation_;
  const MachineProfile& machine_;
  const DtypeRates& rates_;
};

}  // namespace

EngineWays engine_ways(const PlannedModel& model, const EngineSituation& situation,
                       const MachineProfile& machine) {
  return Ways(model, situation, machine).all();
}

}  // namespace moonshard::plan
