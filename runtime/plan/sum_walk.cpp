#include "runtime/plan/sum_walk.h"

#include <algorithm>

namespace moonshard::plan {

SumWalk::SumWalk(const PlannedModel& model, const EngineWays& ways,
                 const MemorySituation& situation, const std::vector<PlannedUnit>& units,
                 const LayerBytes& bytes, const GatherWalk& gathers, GradientWalk& gradients,
                 MemoryLedger& ledger)
    : model_(model),
      ways_(ways),
      situation_(situation),
      units_(units),
      bytes_(bytes),
      gathers_(gathers),
      gradients_(gradients),
      ledger_(ledger),
      offloads_(std::ranges::any_of(units, &PlannedUnit::offloads)) {}

SumWalk::Stretch SumWalk::stretch(size_t index) const {
  return {model_.layers_of(index), ways_.of_stretch(model_, index)};
}

bool SumWalk::is_summed(const PlannedLayer& layer) const {
  return layer.is_shared && std::ranges::any_of(model_.behind, &PlannedLayer::is_shared);
}

bool SumWalk::are_read_by_update(const LayerWay& way) const {
  return way.kept == Kept::Rows && way.compact && gradients_.single() && !offloads_;
}

bool SumWalk::goes_to_update(const LayerWay& way) const {
  return are_read_by_update(way) && gradients_.is_last();
}

// A GPU's rows are handed on as they are (privacy/layer_rules.cpp, add_rows): where ranks reduce,
// the unit's row is taken first, and sums are formed one by one into it (sharding/unit.cpp).
bool SumWalk::waits_for_reduction(const LayerWay& way) const {
  return way.kept == Kept::Rows && model_.fused && gradients_.sends_now();
}

void SumWalk::all() {
  double waiting = 0;  // rows of the first stretch: its unit has the last one, too
  for (size_t i = model_.first_in_backward; i < count(); ++i) {
    const Stretch here = stretch(i);
    double released = 0, sums = 0, rows = 0;
    for (size_t k = 0; k < here.layers.size(); ++k) {
      const PlannedLayer& layer = here.layers[k];
      const LayerWay& way = here.ways[k];
      if (!layer.trained && layer.bias == 0) continue;
      if (i == 0 && way.kept == Kept::Rows && is_summed(layer)) continue;  // in the head's
      if (goes_to_update(way)) {
        rows += bytes_.rows(way);
        if (!gathers_.units_of(i).empty())
          gradients_.leave_rows(gathers_.units_of(i).front(), static_cast<double>(layer.weight));
      } else if (waits_for_reduction(way) && !gathers_.units_of(i).empty()) {
        gradients_.keep_rows(gathers_.units_of(i).front(), bytes_.rows(way),
                             bytes_.gradient(layer));
      } else if (i == 0 || !layer.is_shared) {
        const double goes = bytes_.released(layer, way, i == 0 || model_.reads_batch(i));
        if (model_.fused) {
          sums += bytes_.gradient(layer);
          released += goes;
        } else {
          sum_one(i, layer, way, goes);
        }
      }
    }
    if (sums > 0 && !gathers_.units_of(i).empty())
      gradients_.form(gathers_.units_of(i).front(), sums);
    if (i == 0) released += released_with_first();
    ledger_.free(Holder::EngineKept, std::min(released, ledger_.of(Holder::EngineKept)));
    reduce_completed(i);
    if (i == 0) std::swap(rows, waiting);
    if (i + 1 == count()) rows += waiting;
    if (!situation_.graph)
      ledger_.free(Holder::EngineKept, std::min(rows, ledger_.of(Holder::EngineKept)));
  }
}

// A CPU has one layer's sum after the other, and lets go of what it was made from.
void SumWalk::sum_one(size_t stretch, const PlannedLayer& layer, const LayerWay& way,
                      double released) {
  if (!gathers_.units_of(stretch).empty())
    gradients_.form(gathers_.units_of(stretch).front(), bytes_.gradient(layer));
  if (way.kept == Kept::Inputs) ledger_.touch(Holder::EngineTemporaries, bytes_.sum_working(layer));
  ledger_.free(Holder::EngineKept, std::min(released, ledger_.of(Holder::EngineKept)));
}

double SumWalk::rows_for_update() const {
  double bytes = 0;
  for (size_t i = model_.first_in_backward; i < count(); ++i) {
    const Stretch here = stretch(i);
    for (size_t k = 0; k < here.layers.size(); ++k) {
      const PlannedLayer& layer = here.layers[k];
      const bool of_head = i == 0 && is_summed(layer);
      if ((!layer.trained && layer.bias == 0) || of_head) continue;
      if (goes_to_update(here.ways[k])) bytes += bytes_.rows(here.ways[k]);
    }
  }
  return bytes;
}

// Uses of one weight are summed up together: the head's with the embedding's.
double SumWalk::released_with_first() const {
  double bytes = 0;
  for (size_t k = 0; k < model_.behind.size(); ++k)
    if (model_.behind[k].is_shared && !goes_to_update(ways_.behind[k]))
      bytes += bytes_.released(model_.behind[k], ways_.behind[k], /*is_first=*/false);
  return bytes;
}

void SumWalk::reduce_completed(size_t stretch) {
  for (const size_t u : gathers_.units_of(stretch))
    if (stretch == units_[u].sums_end_at) gradients_.complete(u);
}

}  // namespace moonshard::plan
