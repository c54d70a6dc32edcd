#include "runtime/plan/layer_seconds.h"

#include <algorithm>
#include <map>

#include "runtime/plan/gram_rounds.h"
#include "runtime/privacy/timed_ways.h"

namespace moonshard::plan {
namespace {

using privacy::LayerShape;
using privacy::NormMethod;

constexpr double kSumBytes = 4;
// Of a weight in halves, read and written.
constexpr double kValueBytes = 8;

// What a calibration has found the ghost kernel's rate on.
constexpr GramGroup kTimedGrams{.samples = TimedEngines::kSamples,
                                .positions = TimedEngines::kPositions,
                                .width = TimedEngines::kWidth * (1 + TimedEngines::kLayers)};

// Compact rows that are summed up, of the update's bytes per second: in a step, and as
// privacy/timed_ways.cpp times it, two of them or more. The layers of one input are timed by
// themselves there.
constexpr double kSummed = 0.8, kTimedTwoSummed = 0.9, kTimedSummed = 0.65;

void add_to(GramGroup& group, const PlannedLayer& layer) {
  group.width += static_cast<double>(layer.out + (group.width == 0 ? layer.in : 0));
}

}  // namespace

LayerSeconds::LayerSeconds(const PlannedModel& model, const EngineSituation& situation,
                           const MachineProfile& machine)
    : model_(model),
      situation_(situation),
      machine_(machine),
      rates_(machine.rates(model.compute_bytes == 2 ? "bfloat16" : "float32")),
      gram_per_s_(rates_.ghost / gram_share({kTimedGrams})) {}

LayerShape LayerSeconds::shape_of(const PlannedLayer& layer) const {
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

bool LayerSeconds::by_kernel(const PlannedLayer& layer) const {
  return machine_.is_gpu && model_.compute_bytes == 2 && layer.is_matrix && layer.trained &&
         layer.in % 8 == 0 && layer.out % 8 == 0;
}

// How much slower kernels are on small layers: as products are.
double LayerSeconds::share(const LayerShape& shape) const {
  // Kernels join the layers of a block: a narrow one does not leave the device idle.
  constexpr double kJoined = 0.35;
  const double part = product_share(rates_, shape.out, shape.in, shape.samples * shape.positions);
  return shape.by_kernel ? std::max(part, kJoined) : part;
}

// Of a step's time, what the engine's timings see. In a step kernels are as slow as LibTorch's
// products of their shape (share), as both keep the device at its limit of power.
double LayerSeconds::timed_share(const LayerShape& shape) const {
  if (!shape.by_kernel) return 1;
  const double usual = product_share(rates_, TimedEngines::kWidth, TimedEngines::kWidth,
                                     TimedEngines::kSamples * TimedEngines::kPositions);
  return std::max(usual, share(shape));
}

double LayerSeconds::busy_share(const std::vector<PlannedLayer>& layers) const {
  std::map<size_t, GramGroup> groups;
  const GramGroup nothing{.samples = samples(), .positions = static_cast<double>(model_.tokens)};
  for (const PlannedLayer& layer : layers) {
    if (!by_kernel(layer) || layer.one_position) continue;
    add_to(groups.emplace(layer.input, nothing).first->second, layer);
  }
  std::vector<GramGroup> all;
  for (const auto& [input, group] : groups) all.push_back(group);
  return gram_share(all);
}

// ---- norms --------------------------------------------------------------------------------------
double LayerSeconds::ghost(const LayerShape& shape, double busy) const {
  const double cost = privacy::ghost_cost(shape);
  return shape.by_kernel ? cost / (gram_per_s_ * busy) : cost / (rates_.ghost * share(shape));
}

double LayerSeconds::width(const LayerShape& shape) const {
  const double seconds = privacy::width_cost(shape) / (rates_.flash * share(shape));
  return shape.by_kernel ? std::max(seconds, read(shape)) : seconds;
}

double LayerSeconds::norm(const LayerShape& shape, double busy) const {
  const double part = share(shape);
  const double by_ghost = ghost(shape, busy), by_width = width(shape);
  const std::string& mode = situation_.mode;
  if (mode == "materialize") return privacy::keep_gradients_cost(shape) / (rates_.keep * part);
  if (mode == "ghost" || mode == "bookkeeping") return by_ghost;
  if (mode == "auto") return std::min(by_ghost, by_width);
  if (privacy::choose_flash(shape, situation_.flash_algorithm) == NormMethod::Width)
    return by_width;
  // Kernels compute both in the same way.
  return shape.by_kernel ? by_ghost : privacy::input_length_cost(shape) / (rates_.ghost * part);
}

double LayerSeconds::rows_norm(const LayerShape& shape) const {
  const double cost =
      shape.by_kernel ? privacy::keep_compact_cost(shape) : privacy::keep_gradients_cost(shape);
  const double seconds = cost / (rates_.keep * share(shape));
  return shape.by_kernel ? std::max(seconds, read(shape)) : seconds;
}

// ---- sums ---------------------------------------------------------------------------------------
double LayerSeconds::sum(const PlannedLayer& layer, const LayerShape& shape) const {
  return shape.by_kernel ? kernel_sum(layer, shape)
                         : privacy::sum_inputs_cost(shape) / (rates_.sum * share(shape));
}

// The float32 sum is stored once; the update's time has the reading. Operands are read once at
// least; samples of one position have a kernel of their own, without tensor cores
// (kernels/clipped_sum/clipped_sum_outer.cu).
double LayerSeconds::kernel_sum(const PlannedLayer& layer, const LayerShape& shape) const {
  const double store = kSumBytes * static_cast<double>(layer.weight) / machine_.element_per_s;
  if (shape.positions <= 1) {
    const DtypeRates& wide = machine_.rates("float32");
    return 2 * shape.samples * shape.in * shape.out / (wide.sum * machine_.in_step.outer_sum) +
           store;
  }
  const double multiplied =
      2 * shape.samples * shape.positions * shape.in * shape.out / (rates_.sum * share(shape));
  return std::max(multiplied, read(shape)) + store;
}

// Of (a, g) by a kernel that does little else: an adapter's few columns leave its tiles half empty.
double LayerSeconds::read(const LayerShape& shape) const {
  constexpr double kNarrow = 2;
  return kNarrow * shape.samples * shape.positions * (shape.in + shape.out) * shape.element_bytes /
         machine_.element_per_s;
}

double LayerSeconds::product(const LayerShape& shape) const {
  return product_seconds(rates_, shape.out, shape.in, shape.samples * shape.positions) /
         machine_.in_step.products;
}

double LayerSeconds::summed(const PlannedLayer& layer, double rows_bytes) const {
  return summed_at(layer, rows_bytes, kSummed);
}

double LayerSeconds::read_rows(double rows_bytes, double of_speed) const {
  return rows_bytes / (machine_.update_per_s * of_speed);
}

double LayerSeconds::summed_at(const PlannedLayer& layer, double rows_bytes,
                               double of_speed) const {
  return read_rows(rows_bytes, of_speed) +
         kSumBytes * static_cast<double>(layer.weight) / machine_.update_per_s;
}

// ---- as engine auto times them ------------------------------------------------------------------
// By themselves, in a launch of their own.
double LayerSeconds::timed_norms(const std::vector<const PlannedLayer*>& layers) const {
  privacy::UnitShape timed;
  GramGroup group{.samples = samples(), .positions = static_cast<double>(model_.tokens)};
  for (const PlannedLayer* layer : layers) {
    timed.samples = situation_.samples, timed.positions = model_.tokens, timed.in = layer->in;
    timed.out.push_back(layer->out);
    add_to(group, *layer);
  }
  const auto copies = static_cast<size_t>(privacy::timed_copies(timed));
  const double busy = gram_share(std::vector<GramGroup>(copies, group));
  double by_ghost = 0, by_width = 0, other = 0;
  for (const PlannedLayer* layer : layers) {
    const LayerShape shape = shape_of(*layer);
    if (!shape.by_kernel) {
      other += norm(shape, 1);
      continue;
    }
    by_ghost += ghost(shape, busy);
    by_width += width(shape);
  }
  return std::min(by_ghost, by_width) + other;
}

// With the pass over value and gradient, or kept rows.
privacy::WaysOfReaders LayerSeconds::timed_ways(const std::vector<const PlannedLayer*>& layers,
                                                const std::vector<LayerWay*>& ways) const {
  privacy::WaysOfReaders both;
  both.inputs.cost = timed_norms(layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    const PlannedLayer& layer = *layers[i];
    const LayerShape shape = shape_of(layer);
    const double weight = static_cast<double>(layer.weight), rows_bytes = ways[i]->rows_bytes;
    const double value = kValueBytes * weight / machine_.update_per_s;
    const double store = kSumBytes * weight / machine_.update_per_s + value;
    const double of_speed = situation_.samples <= 2 ? kTimedTwoSummed : kTimedSummed;
    both.inputs.add(privacy::kept_inputs_bytes(shape), ways[i]->sum_s * timed_share(shape) + store);
    both.rows.add(
        rows_bytes,
        rows_norm(shape) * timed_share(shape) +
            (situation_.needs_sums ? summed_at(layer, rows_bytes, of_speed) + store
                                   : read_rows(rows_bytes, machine_.in_step.rows_read) + value));
  }
  return both;
}

}  // namespace moonshard::plan
