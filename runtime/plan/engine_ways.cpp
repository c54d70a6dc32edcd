#include "runtime/plan/engine_ways.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/plan/gram_rounds.h"
#include "runtime/privacy/norm_cost.h"
#include "runtime/privacy/timed_ways.h"
#include "runtime/privacy/way_choice.h"

namespace moonshard::plan {
namespace {

using privacy::LayerShape;
using privacy::NormMethod;

using privacy::kCompactBytes;

constexpr double kSumBytes = 4;
// Of a weight in halves, read and written.
constexpr double kValueBytes = 8;

// What a calibration has found the ghost kernel's rate on.
constexpr GramGroup kTimedGrams{.samples = TimedEngines::kSamples,
                                .positions = TimedEngines::kPositions,
                                .width = TimedEngines::kWidth * (1 + TimedEngines::kLayers)};

// Compact rows that are summed up, of the update's bytes per second: in a step, and as
// privacy/timed_ways.cpp times it, two of them or more.
constexpr double kSummed = 0.8, kTimedTwoSummed = 0.9, kTimedSummed = 0.65;

// Layers that read one input.
struct Readers {
  std::vector<LayerWay*> ways;
  std::vector<const PlannedLayer*> layers;
};

class Ways {
 public:
  Ways(const PlannedModel& model, const EngineSituation& situation, const MachineProfile& machine)
      : model_(model),
        situation_(situation),
        machine_(machine),
        rates_(machine.rates(model.compute_bytes == 2 ? "bfloat16" : "float32")),
        gram_per_s_(rates_.ghost / gram_share({kTimedGrams})) {}

  EngineWays all() {
    EngineWays ways;
    const std::string& mode = situation_.mode;
    ways.is_private = mode != "none";
    each_list(ways,
              [&](const std::vector<PlannedLayer>& layers, std::vector<LayerWay>& list, int64_t) {
                list.resize(layers.size());
                const double busy = busy_share(layers);
                for (size_t i = 0; i < layers.size(); ++i)
                  if (ways.is_private) set_way(layers[i], list[i], busy);
              });
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
  // Of a step's time, what the engine's timings see. In a step kernels are as slow as LibTorch's
  // products of their shape (share), as both keep the device at its limit of power.
  double timed(const LayerShape& shape) const {
    if (!shape.by_kernel) return 1;
    const double usual = product_share(rates_, TimedEngines::kWidth, TimedEngines::kWidth,
                                       TimedEngines::kSamples * TimedEngines::kPositions);
    return std::max(usual, share(shape));
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

  // `busy`: how much of a GPU the layers of its launch keep at work (gram_rounds.h).
  double ghost_s(const LayerShape& shape, double busy) const {
    const double cost = privacy::ghost_cost(shape);
    return shape.by_kernel ? cost / (gram_per_s_ * busy) : cost / (rates_.ghost * share(shape));
  }
  GramGroup gram_group() const {
    return {.samples = samples(), .positions = static_cast<double>(model_.tokens)};
  }
  static void add_to(GramGroup& group, const PlannedLayer& layer) {
    group.width += static_cast<double>(layer.out + (group.width == 0 ? layer.in : 0));
  }
  double busy_share(const std::vector<PlannedLayer>& layers) const {
    std::map<size_t, GramGroup> groups;
    for (const PlannedLayer& layer : layers) {
      if (!by_kernel(layer) || layer.one_position) continue;
      add_to(groups.emplace(layer.input, gram_group()).first->second, layer);
    }
    std::vector<GramGroup> all;
    for (const auto& [input, group] : groups) all.push_back(group);
    return gram_share(all);
  }
  double width_s(const LayerShape& shape) const {
    const double seconds = privacy::width_cost(shape) / (rates_.flash * share(shape));
    return shape.by_kernel ? std::max(seconds, read_s(shape)) : seconds;
  }

  // Of layers that read one input, as the engine times them: by themselves, in a launch of their
  // own.
  double timed_norms_s(const Readers& unit) const {
    privacy::UnitShape timed;
    GramGroup group = gram_group();
    for (const PlannedLayer* layer : unit.layers) {
      timed.samples = situation_.samples, timed.positions = model_.tokens, timed.in = layer->in;
      timed.out.push_back(layer->out);
      add_to(group, *layer);
    }
    const auto copies = static_cast<size_t>(privacy::timed_copies(timed));
    const double busy = gram_share(std::vector<GramGroup>(copies, group));
    double ghost = 0, width = 0, other = 0;
    for (const PlannedLayer* layer : unit.layers) {
      const LayerShape shape = shape_of(*layer);
      if (!shape.by_kernel) {
        other += norm_s(shape, 1);
        continue;
      }
      ghost += ghost_s(shape, busy);
      width += width_s(shape);
    }
    return std::min(ghost, width) + other;
  }
  // Seconds of a norm by the engine's own choice of method.
  double norm_s(const LayerShape& shape, double busy) const {
    const double part = share(shape);
    const double ghost = ghost_s(shape, busy), width = width_s(shape);
    const std::string& mode = situation_.mode;
    if (mode == "materialize") return privacy::keep_gradients_cost(shape) / (rates_.keep * part);
    if (mode == "ghost" || mode == "bookkeeping") return ghost;
    if (mode == "auto") return std::min(ghost, width);
    if (privacy::choose_flash(shape, situation_.flash_algorithm) == NormMethod::Width) return width;
    // Kernels compute both in the same way.
    return shape.by_kernel ? ghost : privacy::input_length_cost(shape) / (rates_.ghost * part);
  }

  void set_way(const PlannedLayer& layer, LayerWay& way, double busy) const {
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
    way.norm_s = norm_s(shape, busy);
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
    const double sum = machine_.is_gpu ? kSumBytes * static_cast<double>(layer.weight) : 0;
    way.sum_s = is_summed ? (way.rows_bytes + sum) / machine_.element_per_s : 0;
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

  // By the update's kernel, which forms the sum alone more slowly than it goes on with it: more so
  // where the layers of one input are timed by themselves.
  double read_rows_s(const LayerWay& way, double of_speed) const {
    return way.rows_bytes / (machine_.update_per_s * of_speed);
  }
  double sum_rows_s(const PlannedLayer& layer, const LayerWay& way, double of_speed) const {
    return read_rows_s(way, of_speed) +
           kSumBytes * static_cast<double>(layer.weight) / machine_.update_per_s;
  }

  void take_rows(const PlannedLayer& layer, LayerWay& way) const {
    way.kept = Kept::Rows;
    way.norm_s = rows_norm_s(shape_of(layer));
    way.sum_s = situation_.needs_sums || !way.compact ? sum_rows_s(layer, way, kSummed) : 0;
  }

  /// Layers, their ways, and how many there are of each.
  template <class Visit>
  void each_list(EngineWays& ways, const Visit& each) const {
    each(model_.before, ways.before, int64_t{1});
    each(model_.block, ways.block, model_.blocks_in_backward());
    each(model_.behind, ways.behind, int64_t{1});
  }

  /// Layers that have a choice, by the input that they read.
  template <class Visit>
  void visit(EngineWays& ways, const Visit& each) const {
    each_list(ways, [&](const std::vector<PlannedLayer>& layers, std::vector<LayerWay>& list,
                        int64_t times) {
      std::map<size_t, Readers> readers;
      for (size_t i = 0; i < layers.size(); ++i) {
        const PlannedLayer& layer = layers[i];
        if (!layer.is_matrix || !layer.trained || layer.is_shared || layer.one_position ||
            layer.by_samples || model_.tokens <= 1)
          continue;
        if (by_kernel(layer) && !privacy::has_compact_rows(shape_of(layer))) continue;
        Readers& unit = readers[layer.input];
        unit.ways.push_back(&list[i]);
        unit.layers.push_back(&layer);
      }
      for (auto& [input, unit] : readers) each(unit, times);
    });
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

  // auto: the engine's own choice, by times that its timings would find. These decide by
  // differences that rates may not tell: what fits must do so with `at_most`. Blocks are alike: the
  // engine would change some of them where its budget ends, a plan all or none.
  void choose(EngineWays& ways) const {
    std::vector<Readers> units;
    std::vector<privacy::WaysOfReaders> choices;
    visit(ways, [&](Readers& unit, int64_t times) {
      units.push_back(unit);
      choices.push_back(ways_of(unit));
      choices.back().count = static_cast<double>(times);
    });
    std::vector<privacy::WaysOfReaders*> all;
    for (privacy::WaysOfReaders& choice : choices) all.push_back(&choice);
    const privacy::WayBudget budget{situation_.budget_bytes, always_kept(ways),
                                    situation_.budget_is_asked, situation_.at_most};
    ways.two_passes = !privacy::choose_ways(all, budget);
    for (size_t i = 0; i < units.size(); ++i)
      if (choices[i].keeps_rows && !ways.two_passes)
        for (size_t k = 0; k < units[i].ways.size(); ++k)
          take_rows(*units[i].layers[k], *units[i].ways[k]);
  }

  // As timed_ways.cpp has it: with the pass over value and gradient, or kept rows.
  privacy::WaysOfReaders ways_of(const Readers& unit) const {
    privacy::WaysOfReaders both;
    both.inputs.cost = timed_norms_s(unit);
    for (size_t i = 0; i < unit.ways.size(); ++i) {
      const LayerShape shape = shape_of(*unit.layers[i]);
      const LayerWay& way = *unit.ways[i];
      const double weight = static_cast<double>(unit.layers[i]->weight);
      const double value = kValueBytes * weight / machine_.update_per_s;
      const double store = kSumBytes * weight / machine_.update_per_s + value;
      both.inputs.add(privacy::kept_inputs_bytes(shape), way.sum_s * timed(shape) + store);
      both.rows.add(
          way.rows_bytes,
          rows_norm_s(shape) * timed(shape) +
              (situation_.needs_sums
                   ? sum_rows_s(*unit.layers[i], way,
                                situation_.samples <= 2 ? kTimedTwoSummed : kTimedSummed) +
                         store
                   : read_rows_s(way, machine_.in_step.rows_read) + value));
    }
    return both;
  }

  // What the engine keeps of layers that have no choice.
  double always_kept(EngineWays& ways) const {
    double bytes = 0;
    std::set<const PlannedLayer*> with_choice;
    visit(ways, [&](Readers& unit, int64_t) {
      with_choice.insert(unit.layers.begin(), unit.layers.end());
    });
    each_list(ways, [&](const std::vector<PlannedLayer>& layers, std::vector<LayerWay>& list,
                        int64_t times) {
      for (size_t i = 0; i < layers.size(); ++i) {
        const PlannedLayer& layer = layers[i];
        double own = layer.is_small ? 0 : samples() * static_cast<double>(layer.bias) * kSumBytes;
        if (list[i].kept == Kept::Rows) {
          own += list[i].rows_bytes;
        } else if (layer.trained && !with_choice.contains(&layer)) {
          LayerShape shape = shape_of(layer);
          if (!layer.is_matrix) shape.in = 0;  // ids
          own += privacy::kept_inputs_bytes(shape);
        }
        bytes += own * static_cast<double>(times);
      }
    });
    return bytes;
  }

  const PlannedModel& model_;
  const EngineSituation& situation_;
  const MachineProfile& machine_;
  const DtypeRates& rates_;
  double gram_per_s_;  ///< of the ghost kernel, where all of the GPU is at work
};

}  // namespace

EngineWays engine_ways(const PlannedModel& model, const EngineSituation& situation,
                       const MachineProfile& machine) {
  return Ways(model, situation, machine).all();
}

}  // namespace moonshard::plan
