// Gradients of units through a step, as a rank holds them: formed, sent in rows, added up in parts,
// updated; or, with offload, leaving for the host. The same limits as in
// sharding/wrapped_model.cpp. Torch-free.
#pragma once

#include <deque>
#include <set>
#include <vector>

#include "runtime/plan/memory_ledger.h"

namespace moonshard::plan {

class GradientWalk {
 public:
  GradientWalk(const PlannedModel& model, bool is_private,
               const sharding::ShardingOptions& sharding, const MemorySituation& situation,
               MemoryLedger& ledger);

  /// One rank holds all of what it updates: nothing is sent.
  bool single() const { return single_; }
  void begin_micro_batch(bool last) { last_ = last; }
  bool is_last() const { return last_; }
  /// Bytes of gradients that a layer of the unit has formed.
  void form(size_t unit, double bytes);
  /// Rows that an engine has kept of a layer: they are summed up one by one, behind the unit's row.
  void keep_rows(size_t unit, double rows, double sum);
  /// Rows of so many elements go to the update as they are.
  void leave_rows(size_t unit, double elements) { left_rows_[unit] += elements; }
  /// What is complete now is sent to the other ranks.
  bool sends_now() const { return !single_ && (!sharding_.no_sync || last_); }
  /// All of the unit's are there: they are sent, leave, or are updated.
  void complete(size_t unit);
  /// What is in flight arrives: at the end of the step, and behind the first unit of the next
  /// micro-batch.
  void finish() { limit(0); }

 private:
  struct InFlight {
    size_t unit;
    double row, part;
    bool last;  ///< of the last micro-batch
  };

  /// Bytes of one or more layers, in the order of the unit's row.
  struct Piece {
    double formed = 0;         ///< gradients that are there
    double rows = 0, sum = 0;  ///< or rows, and what their sum will take
  };

  double sum_bytes(double elements) const {
    return elements * static_cast<double>(model_.sum_bytes);
  }
  double updated_elements(size_t unit) const {
    return static_cast<double>(parts_ ? units_[unit].trained_shard : units_[unit].trained);
  }
  void send(size_t unit);
  void leave(size_t unit);
  void add_up(size_t unit);
  void limit(size_t most);
  void finish_across(size_t left);
  void arrive(const InFlight& row);
  double held_elements(size_t unit) const;
  double most_updated() const;
  double most_of_a_batch() const;
  void reserve(double held);
  void update(size_t unit, double sums);
  void update_batch(size_t unit);

  const PlannedModel& model_;
  const sharding::ShardingOptions& sharding_;
  const MemorySituation& situation_;
  MemoryLedger& ledger_;
  const std::vector<PlannedUnit>& units_;
  bool parts_, single_, adds_in_place_, updates_early_;
  bool last_ = true, reserved_ = false;
  std::vector<double> held_;                ///< by unit: gradients that its layers have formed
  std::vector<double> sums_;                ///< by unit, on one rank: of the micro-batches before
  std::vector<double> left_rows_;           ///< by unit: elements of rows that the update reads
  std::vector<std::vector<Piece>> pieces_;  ///< by unit, of what is to be sent
  std::deque<InFlight> in_flight_, across_;
  std::deque<double> leaving_;
  std::set<size_t> summed_;
  std::set<size_t> kept_back_;  ///< units with gradients of micro-batches that did not reduce
};

}  // namespace moonshard::plan
