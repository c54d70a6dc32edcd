#include "runtime/plan/gradient_walk.h"

#include <algorithm>
#include <numeric>

#include "runtime/plan/widened_states.h"
#include "runtime/sharding/unit_order.h"

namespace moonshard::plan {

GradientWalk::GradientWalk(const PlannedModel& model, bool is_private,
                           const sharding::ShardingOptions& sharding,
                           const MemorySituation& situation, MemoryLedger& ledger)
    : model_(model),
      sharding_(sharding),
      situation_(situation),
      ledger_(ledger),
      units_(model.units(sharding, situation.ranks)),
      parts_(sharding.parallel == "fsdp"),
      held_(units_.size(), 0),
      sums_(units_.size(), 0),
      left_rows_(units_.size(), 0),
      pieces_(units_.size()) {
  const int64_t holders = units_.empty() ? 1 : units_[0].ranks;
  single_ = parts_ ? holders == 1 : sharding.parallel == "none" || situation.ranks == 1;
  adds_in_place_ = is_private;
  updates_early_ = is_private && !situation.graph;
}

void GradientWalk::form(size_t unit, double bytes) {
  // Without a wrapper, or where micro-batches do not reduce, layers add to the sums of those
  // before: engines' kernels in place, others a gradient that they have formed.
  const bool adds =
      kept_back_.contains(unit) || (sharding_.parallel == "none" && summed_.contains(unit));
  if (adds) {
    const double formed = adds_in_place_ ? 0 : bytes;
    ledger_.add(Holder::Gradients, formed);
    ledger_.free(Holder::Gradients, formed);
    return;
  }
  update_batch(unit);
  ledger_.add(Holder::Gradients, bytes);
  held_[unit] += bytes;
  if (!single_) pieces_[unit].push_back({.formed = bytes});
}

// Without a wrapper parameters are updated as soon as they are enough for a batch; in a CPU's plan
// before the next layer's gradient comes. A weight with several uses waits for all of them. A GPU's
// plans were checked with whole stretches.
void GradientWalk::update_batch(size_t unit) {
  if (model_.fused || sharding_.parallel != "none" || !updates_early_ || !last_) return;
  const auto least = static_cast<double>(model_.num_trained / sharding::kUpdateBatches);
  if (held_[unit] < sum_bytes(least) ||
      std::ranges::any_of(model_.behind, &PlannedLayer::is_shared))
    return;
  ledger_.touch(Holder::Rest, widened_states(situation_, held_[unit] / sum_bytes(1)));
  ledger_.free(Holder::Gradients, held_[unit]);
  held_[unit] = 0;
}

void GradientWalk::keep_rows(size_t unit, double rows, double sum) {
  pieces_[unit].push_back({.rows = rows, .sum = sum});
}

void GradientWalk::complete(size_t unit) {
  if (!single_) {
    if (sends_now()) {
      send(unit);
    } else {
      kept_back_.insert(unit);
    }
  } else if (units_[unit].offloads) {
    leave(unit);
  } else {
    add_up(unit);
  }
}

// One rank: what a micro-batch has formed is added to the sums, which stay until the update.
void GradientWalk::add_up(size_t unit) {
  const bool first = summed_.insert(unit).second;
  if (first) {
    sums_[unit] = held_[unit];
  } else {
    ledger_.free(Holder::Gradients, held_[unit]);
  }
  held_[unit] = 0;
  if (!updates_early_ || !last_) return;
  reserve(held_elements(unit));
  update(unit, sums_[unit]);
}

void GradientWalk::send(size_t unit) {
  limit(sharding::kReductionsUnderWay - 1);
  const double size = units_[unit].narrow_sums ? 2 : static_cast<double>(model_.sum_bytes);
  const double row = static_cast<double>(units_[unit].whole_trained()) * size;
  const double part = parts_ ? static_cast<double>(units_[unit].trained_shard) * size : 0;
  ledger_.add(Holder::Communication, row);
  // Summed up where it is not yet, copied and freed; kernels sum up in the row.
  const bool in_row = model_.fused && size == 4;
  for (const Piece& piece : pieces_[unit]) {
    const double sum = in_row ? 0 : piece.sum;
    ledger_.add(Holder::Gradients, sum);
    ledger_.free(Holder::EngineKept, std::min(piece.rows, ledger_.of(Holder::EngineKept)));
    ledger_.free(Holder::Gradients, piece.formed + sum);
  }
  pieces_[unit].clear();
  held_[unit] = 0;
  kept_back_.erase(unit);
  ledger_.add(Holder::Communication, part);
  in_flight_.push_back({unit, row, part, last_});
}

// Beside the backward pass; a unit's are freed when its update has ended, which so many others wait
// for at most. Their memory comes back when the stream that copied them says so, which is one unit
// later.
void GradientWalk::leave(size_t unit) {
  leaving_.push_back(held_[unit]);
  held_[unit] = 0;
  for (; leaving_.size() > sharding::kUpdatesBeside + 1; leaving_.pop_front())
    ledger_.free(Holder::Gradients, leaving_.front());
}

void GradientWalk::limit(size_t most) {
  if (!parts_ || sharding_.replicate <= 1) {
    for (; in_flight_.size() > most; in_flight_.pop_front()) arrive(in_flight_.front());
    return;
  }
  finish_across(most);
  for (; !in_flight_.empty(); in_flight_.pop_front()) {  // parts go across to the other copies
    const InFlight& row = in_flight_.front();
    ledger_.free(Holder::Communication, row.row);
    across_.push_back({row.unit, 0, row.part, row.last});
  }
  if (most == 0) finish_across(0);
}

void GradientWalk::finish_across(size_t left) {
  for (; across_.size() > left; across_.pop_front()) arrive(across_.front());
}

void GradientWalk::arrive(const InFlight& row) {
  ledger_.free(Holder::Communication, row.row + row.part);
  if (units_[row.unit].offloads) return;
  const double sums = sum_bytes(updated_elements(row.unit));
  if (summed_.insert(row.unit).second) ledger_.add(Holder::Gradients, sums);
  if (!updates_early_ || !row.last) return;
  reserve(updated_elements(row.unit));
  update(row.unit, sums);
}

// Without a wrapper batches before the last one have gone; of a CPU's plan (update_batch) they have
// left nothing in the sums.
void GradientWalk::update(size_t unit, double sums) {
  if (widened_states(situation_, 1) > 0) {
    double own = updated_elements(unit);
    if (sharding_.parallel == "none") own = std::min(own, most_of_a_batch());
    if (sharding_.parallel == "none" && !model_.fused) own = std::min(own, sums / sum_bytes(1));
    const double gone = std::max(0.0, sums - sum_bytes(own));
    ledger_.touch(Holder::Rest, std::max(0.0, widened_states(situation_, own) - gone));
  }
  ledger_.free(Holder::Gradients, sums);
  summed_.erase(unit);
}

// By the unit whose update comes; without a wrapper by all layers whose sums have been formed, as
// sums or as rows.
double GradientWalk::held_elements(size_t unit) const {
  const auto size = static_cast<double>(model_.sum_bytes);
  if (sharding_.parallel != "none") return sums_[unit] / size + left_rows_[unit];
  return std::accumulate(left_rows_.begin(), left_rows_.end(),
                         ledger_.of(Holder::Gradients) / size);
}

// The most elements that an update of one unit has; without a wrapper, of one batch of parameters
// (sharding/unwrapped.cpp).
double GradientWalk::most_updated() const {
  double most = 0;
  if (sharding_.parallel != "none") {
    for (size_t u = 0; u < units_.size(); ++u) most = std::max(most, updated_elements(u));
    return most;
  }
  return most_of_a_batch();
}

double GradientWalk::most_of_a_batch() const {
  double most = 0;
  for (const auto* layers : model_.all())
    for (const PlannedLayer& layer : *layers)
      if (layer.trained) most = std::max(most, static_cast<double>(layer.weight));
  return most + static_cast<double>(model_.num_trained / sharding::kUpdateBatches);
}

// Before the first update the memory of the largest one's gradients is taken and given back, so
// that running out of it comes before anything has changed (train/step_update.cpp).
void GradientWalk::reserve(double held) {
  if (reserved_ || !model_.fused || situation_.grad_accum > 1) return;
  reserved_ = true;
  const double missing = sum_bytes(std::max(0.0, most_updated() - held));
  ledger_.add(Holder::EngineTemporaries, missing);
  ledger_.free(Holder::EngineTemporaries, missing);
}

}  // namespace moonshard::plan
