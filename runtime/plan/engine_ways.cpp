#include "runtime/plan/engine_ways.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "runtime/plan/layer_seconds.h"
#include "runtime/privacy/norm_cost.h"
#include "runtime/privacy/way_choice.h"

namespace moonshard::plan {
namespace {

using privacy::kCompactBytes;
using privacy::LayerShape;

constexpr double kSumBytes = 4;
// Squares of rows are summed up by LibTorch, at four fifths of the speed of element-wise kernels:
// of the bytes, as often as they are read.
constexpr double kReadForNorm = 1.25;

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
        is_gpu_(machine.is_gpu),
        seconds_(model, situation, machine) {}

  EngineWays all() {
    EngineWays ways;
    const std::string& mode = situation_.mode;
    ways.is_private = mode != "none";
    each_list(ways,
              [&](const std::vector<PlannedLayer>& layers, std::vector<LayerWay>& list, int64_t) {
                list.resize(layers.size());
                const double busy = seconds_.busy_share(layers);
                for (size_t i = 0; i < layers.size(); ++i)
                  if (ways.is_private) set_way(layers[i], list[i], busy);
              });
    if (!ways.is_private) return ways;
    ways.two_passes = is_of_two_passes();
    if (mode == "auto") choose(ways);
    if (mode == "flash_bookkeeping" && situation_.flash_algorithm == "auto") keep_smaller(ways);
    if (ways.two_passes || situation_.per_layer)
      for (std::vector<LayerWay>* list : ways.all())
        for (LayerWay& way : *list) way.kept = Kept::Nothing;
    ways.two_passes = ways.two_passes && !situation_.per_layer;
    return ways;
  }

 private:
  bool is_of_two_passes() const { return situation_.mode == "ghost" || situation_.mode == "flash"; }

  void set_way(const PlannedLayer& layer, LayerWay& way, double busy) const {
    if (!layer.trained && layer.bias == 0) return;
    const LayerShape shape = seconds_.shape_of(layer);
    if (layer.is_small) {
      way.kept = Kept::Rows;
      way.rows_bytes =
          seconds_.samples() * static_cast<double>(layer.weight + layer.bias) * kSumBytes;
      return;
    }
    if (!layer.is_matrix && layer.is_shared && head_is_chunked()) {
      way.kept = Kept::Rows;  // added to the head's, in place
      return;
    }
    if (!layer.is_matrix && situation_.mode == "materialize") return set_table(layer, way);
    if (!layer.is_matrix) {  // tables: the output's gradient is read and sorted
      way.kept = Kept::Inputs;
      way.norm_s =
          seconds_.moved(3 * shape.samples * shape.positions * shape.in * shape.element_bytes);
      way.sum_s = way.norm_s;
      return;
    }
    if (layer.by_samples) return set_samples(layer, shape, way);
    way.joins = shape.by_kernel && !layer.is_shared;
    way.norm_s = seconds_.norm(shape, busy);
    way.sum_s = seconds_.sum(layer, shape);
    way.kept = Kept::Inputs;
    way.rows_bytes =
        seconds_.samples() * static_cast<double>(layer.weight) *
        (way.joins ? kCompactBytes
                   : std::max<double>(kSumBytes, static_cast<double>(model_.compute_bytes)));
    way.compact = way.joins;
    if (situation_.mode != "materialize") return;
    set_rows(layer, way);
    // Written by plain products, and read for the norm.
    if (is_gpu_)
      way.norm_s = seconds_.product(shape) + seconds_.moved((1 + kReadForNorm) * way.rows_bytes);
  }

  // Every sample's gradient, in full; one rank's update reads it as it is.
  void set_rows(const PlannedLayer& layer, LayerWay& way) const {
    way.kept = Kept::Rows;
    way.joins = false;
    way.compact = is_gpu_;
    way.rows_bytes = seconds_.samples() * static_cast<double>(layer.weight) *
                     std::max<double>(kSumBytes, static_cast<double>(model_.compute_bytes));
    const bool is_summed = situation_.needs_sums || !way.compact;
    const double sum = is_gpu_ ? kSumBytes * static_cast<double>(layer.weight) : 0;
    way.sum_s = is_summed ? seconds_.moved(way.rows_bytes + sum) : 0;
  }

  // Every sample's table is filled with zeros and read for the norm; one that shares its weight
  // with the head is added to the head's gradients, which have the norm then.
  void set_table(const PlannedLayer& layer, LayerWay& way) const {
    constexpr double kFilled = 1, kAdded = 3;
    set_rows(layer, way);
    if (!is_gpu_) return;
    way.norm_s =
        seconds_.moved((kFilled + (layer.is_shared ? kAdded : kReadForNorm)) * way.rows_bytes);
  }

  // A head in chunks: plain products, which a second pass has again, and rows read for the norm.
  void set_samples(const PlannedLayer& layer, const LayerShape& shape, LayerWay& way) const {
    set_rows(layer, way);
    const double product = seconds_.product(shape);
    way.norm_s = product + seconds_.moved(way.rows_bytes);
    if (is_of_two_passes() && !situation_.per_layer) way.sum_s += product;
  }
  bool head_is_chunked() const {
    return std::ranges::any_of(model_.behind, &PlannedLayer::by_samples);
  }

  void take_rows(const PlannedLayer& layer, LayerWay& way) const {
    way.kept = Kept::Rows;
    way.norm_s = seconds_.rows_norm(seconds_.shape_of(layer));
    const bool is_summed = situation_.needs_sums || !way.compact;
    way.sum_s = is_summed ? seconds_.summed(layer, way.rows_bytes) : 0;
  }

  /// Layers, their ways, and how many there are of each.
  template <class Visit>
  void each_list(EngineWays& ways, const Visit& each) const {
    each(model_.before, ways.before, int64_t{1});
    each(model_.block, ways.block, model_.blocks_in_backward());
    each(model_.last_block, ways.last_block, int64_t{1});
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
        const LayerShape shape = seconds_.shape_of(layer);
        if (shape.by_kernel && !privacy::has_compact_rows(shape)) continue;
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
      const double positions = seconds_.samples() * static_cast<double>(model_.tokens);
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
  // differences that rates may not tell: what fits must do so with `at_most`.
  void choose(EngineWays& ways) const {
    std::vector<Readers> units;
    std::vector<privacy::WaysOfReaders> choices;
    visit(ways, [&](Readers& unit, int64_t times) {
      units.push_back(unit);
      choices.push_back(seconds_.timed_ways(unit.layers, unit.ways));
      choices.back().count = static_cast<double>(times);
    });
    std::vector<privacy::WaysOfReaders*> all;
    for (privacy::WaysOfReaders& choice : choices) all.push_back(&choice);
    const privacy::WayBudget budget{situation_.budget_bytes, always_kept(ways),
                                    situation_.budget_is_asked, situation_.at_most};
    ways.two_passes = !privacy::choose_ways(all, budget);
    if (ways.two_passes) return;
    const std::vector<LayerWay> with_inputs = ways.block;
    for (size_t i = 0; i < units.size(); ++i)
      if (choices[i].keeps_rows)
        for (size_t k = 0; k < units[i].ways.size(); ++k)
          take_rows(*units[i].layers[k], *units[i].ways[k]);
    for (size_t i = 0; i < units.size(); ++i)
      if (choices[i].others > 0) split_blocks(ways, with_inputs, units[i], choices[i]);
  }

  // The last blocks keep the other way of these layers; seconds are the mean of all, as steps are
  // timed by one block.
  void split_blocks(EngineWays& ways, const std::vector<LayerWay>& with_inputs, const Readers& unit,
                    const privacy::WaysOfReaders& choice) const {
    const auto first = static_cast<size_t>(model_.num_blocks - std::llround(choice.others));
    const auto at = std::ranges::find_if(ways.later_blocks,
                                         [&](const auto& later) { return later.first > first; });
    ways.later_blocks.insert(at, {first, ways.of_block(first)});
    for (size_t k = 0; k < unit.ways.size(); ++k) {
      const auto place = static_cast<size_t>(unit.ways[k] - ways.block.data());
      LayerWay other = with_inputs[place];
      if (!choice.keeps_rows) take_rows(*unit.layers[k], other);
      LayerWay& own = ways.block[place];
      const double share = choice.others / choice.count;
      own.norm_s = other.norm_s = std::lerp(own.norm_s, other.norm_s, share);
      own.sum_s = other.sum_s = std::lerp(own.sum_s, other.sum_s, share);
      for (auto& [begin, later] : ways.later_blocks) later[place] = begin < first ? own : other;
    }
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
        double own =
            layer.is_small ? 0 : seconds_.samples() * static_cast<double>(layer.bias) * kSumBytes;
        if (list[i].kept == Kept::Rows) {
          own += list[i].rows_bytes;
        } else if (layer.trained && !with_choice.contains(&layer)) {
          LayerShape shape = seconds_.shape_of(layer);
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
  bool is_gpu_;
  LayerSeconds seconds_;
};

}  // namespace

EngineWays engine_ways(const PlannedModel& model, const EngineSituation& situation,
                       const MachineProfile& machine) {
  return Ways(model, situation, machine).all();
}

}  // namespace moonshard::plan
