#include "runtime/plan/unit_program.h"

#include <algorithm>

#include "runtime/plan/update_costs.h"

namespace moonshard::plan {

UnitProgram::UnitProgram(const PlannedModel& model, const EngineWays& ways,
                         const sharding::ShardingOptions& sharding, const TimeSituation& situation,
                         const MachineProfile& machine, StepProgram& program)
    : model_(model),
      ways_(ways),
      sharding_(sharding),
      situation_(situation),
      machine_(machine),
      program_(program),
      order_(sharding),
      units_(model.units(sharding, situation.ranks)),
      parts_(sharding.parallel == "fsdp"),
      ready_(units_.size(), kNoSlot),
      gathered_(units_.size(), false),
      of_stretch_(model.num_stretches()) {
  holders_ = units_.empty() ? 1 : units_[0].ranks;
  single_ = parts_ ? holders_ == 1 : sharding.parallel == "none" || situation.ranks == 1;
  offloads_ = std::any_of(units_.begin(), units_.end(), is_offloaded);
  for (size_t u = 0; u < units_.size(); ++u)
    for (const size_t stretch : units_[u].stretches) of_stretch_[stretch].push_back(u);
}

void UnitProgram::gather(size_t u) {
  if (gathered_[u] || !parts_) return;
  gathered_[u] = true;
  if (!needs_gather(u)) return;
  const PlannedUnit& unit = units_[u];
  const bool has_frozen = order_.keeps_whole() || (sharding_.keep_frozen && frozen_is_there_);
  const double elements = static_cast<double>(has_frozen ? unit.whole_trained() : unit.whole());
  const double bytes = elements * static_cast<double>(unit.compute_bytes);
  ready_[u] = kNoSlot;
  if (unit.offloads) {
    const double part = bytes / static_cast<double>(holders_);
    ready_[u] = program_.copy("to device", Lane::ToDevice, part / machine_.to_device_per_s);
    if (holders_ == 1) return;
  }
  if (holders_ == 1) {
    program_.compute("cast", 2 * bytes / machine_.element_per_s, 1);
    return;
  }
  const double share = 1 - 1 / static_cast<double>(holders_);
  program_.compute("gather", fresh_seconds(machine_, bytes), machine_.in_step.gather);
  ready_[u] = collective("all_gather", GroupKind::Shards, Lane::Communication, bytes, share,
                         2 * bytes, ready_[u]);
}

// A collective takes what was measured between ranks of one machine, or what its link needs.
Slot UnitProgram::collective(const char* name, GroupKind group, Lane lane, double bytes,
                             double share, double memory_bytes, Slot after) {
  const int64_t ranks = group == GroupKind::All      ? situation_.ranks
                        : group == GroupKind::Shards ? holders_
                                                     : sharding_.replicate;
  const Topology& topology = situation_.topology;
  CollectiveSeconds measured;
  if (topology.nodes == 1) measured = collective_seconds(machine_, name, ranks, bytes);
  if (measured.alone >= 0)
    share = std::max(0.0, measured.alone - topology.link.latency_s) * topology.link.bytes_per_s /
            std::max(1.0, bytes);
  if (measured.of_cores > 0 && !machine_.is_gpu)
    return program_.collective(name, group, lane, bytes, share,
                               measured.of_cores * without_core(machine_, topology.gpus), after);
  // Kernels of engines have a block on every multiprocessor: they wait for the one that is busy.
  const double beside = parts_ && ways_.is_private
                            ? machine_.in_step.beside * share * bytes / topology.link.bytes_per_s
                            : 0;
  return program_.collective(name, group, lane, bytes, share,
                             memory_bytes / machine_.element_per_s + beside, after);
}

void UnitProgram::reduce(size_t u) {
  const PlannedUnit& unit = units_[u];
  if (unit.trained == 0 || (sharding_.no_sync && !last_ && !single_)) return;
  const double size = unit.narrow_sums ? 2 : static_cast<double>(model_.sum_bytes);
  program_.compute("new", fresh_seconds(machine_, size * static_cast<double>(unit.trained)), 0);
  if (!single_) {
    limit(sharding::kReductionsUnderWay - 1);
    const double row = static_cast<double>(parts_ ? unit.whole_trained() : unit.trained) * size;
    const InStep& step = machine_.in_step;
    // Sums of kept rows are formed where they are to go (sharding/unit.cpp, fill): theirs is the
    // time of the clipped sum.
    const double copied = model_.fused && size == 4 ? row * (1 - share_of_rows(u)) : row;
    program_.compute("copy gradients",
                     2 * copied / machine_.element_per_s + fresh_seconds(machine_, row),
                     step.reduce + step.reduced_tensor * static_cast<double>(unit.tensors));
    const double n = static_cast<double>(parts_ ? holders_ : situation_.ranks);
    const double share = (1 - 1 / n) * (parts_ ? 1 : 2);
    in_flight_.push_back({u, last_,
                          collective(parts_ ? "reduce_scatter" : "all_reduce",
                                     parts_ ? GroupKind::Shards : GroupKind::All,
                                     Lane::Communication, row, share, parts_ ? 2 * row / n : row)});
  } else {
    use_sums(u, last_);
  }
}

// Sums of a unit are there. On one rank those of later micro-batches are added to the first's, but
// for rows that the update reads beside these.
void UnitProgram::use_sums(size_t u, bool last) {
  if (!first_ && single_ && parts_) {
    constexpr double kAdded = 3;  // both are read, one is written
    program_.compute("add gradients",
                     kAdded * part_of(u) * (last_ ? 1 - share_of_rows(u) : 1) *
                         static_cast<double>(model_.sum_bytes) / machine_.element_per_s,
                     1);
  }
  if (units_[u].offloads) {
    leave(u);
  } else if (ways_.is_private && !situation_.graph && last) {
    update(u);
  }
}

// As WrappedModel::limit_reductions: between copies a part travels beside the next units' work.
void UnitProgram::limit(size_t most) {
  if (!parts_ || sharding_.replicate <= 1) {
    for (; in_flight_.size() > most; in_flight_.pop_front()) {
      program_.wait(in_flight_.front().done);
      use_sums(in_flight_.front().unit, in_flight_.front().last);
    }
    return;
  }
  finish_across(most);
  for (; !in_flight_.empty(); in_flight_.pop_front()) {
    const auto [u, last, done] = in_flight_.front();
    program_.wait(done);
    const double part = static_cast<double>(units_[u].trained_shard * model_.sum_bytes);
    const double copies = static_cast<double>(sharding_.replicate);
    across_.push_back({u, last,
                       collective("all_reduce copies", GroupKind::Replicas, Lane::Copies, part,
                                  2 * (1 - 1 / copies), part)});
  }
  if (most == 0) finish_across(0);
}

void UnitProgram::finish_across(size_t left) {
  for (; across_.size() > left; across_.pop_front()) {
    program_.wait(across_.front().done);
    use_sums(across_.front().unit, across_.front().last);
  }
}

double UnitProgram::update_time(size_t u) const {
  UpdatedPart part{part_of(u), rows_of(u)};
  const auto tensors = static_cast<double>(units_[u].tensors);
  part.tensors = single_ ? tensors : 1;  // parts of several ranks are one row
  part.pieces = 1 + tensors / static_cast<double>(holders_);
  if (single_ && last_ && ways_.is_private && units_[u].small > 0)
    part.rows = static_cast<double>(situation_.samples);
  return update_seconds(model_, machine_, part, situation_.states, situation_.state_bytes,
                        situation_.noise && ways_.is_private);
}

// A weight that the table shares with the head counts with the head.
template <class Visit>
void UnitProgram::each_layer(size_t u, const Visit& each) const {
  const auto visit = [&](const std::vector<PlannedLayer>& layers, const std::vector<LayerWay>& ways,
                         bool shared) {
    for (size_t i = 0; i < layers.size(); ++i)
      if (layers[i].trained && (shared || !layers[i].is_shared)) each(layers[i], ways[i]);
  };
  const bool is_last = !units_[u].stretches.empty() &&
                       model_.kind_of(units_[u].stretches.front()) == StretchKind::LastBlock;
  if (!units_[u].is_root && is_last) return visit(model_.last_block, ways_.last_block, true);
  if (!units_[u].is_root) return visit(model_.block, ways_.block, true);
  visit(model_.before, ways_.before, false);
  visit(model_.behind, ways_.behind, true);
}

// Kept gradients per element, where the update reads them instead of a sum: bytes that take as
// long. Sums of earlier micro-batches are read beside them.
double UnitProgram::rows_of(size_t u) const {
  if (!single_ || !last_ || !ways_.is_private) return 0;
  double bytes = 0, elements = 0;
  each_layer(u, [&](const PlannedLayer& layer, const LayerWay& way) {
    const auto weight = static_cast<double>(layer.weight);
    const InStep& step = machine_.in_step;
    const double of_speed =
        (way.joins ? step.rows_read : step.wide_rows_read) * (first_ ? 1 : step.rows_beside_sum);
    if (are_rows(way)) bytes += way.rows_bytes / of_speed;
    if (!are_rows(way) || !first_) bytes += static_cast<double>(model_.sum_bytes) * weight;
    elements += weight;
  });
  return elements > 0 ? bytes / elements : 0;
}

// Of a unit's elements, those whose gradients are kept as rows.
double UnitProgram::share_of_rows(size_t u) const {
  if (!ways_.is_private || ways_.two_passes) return 0;
  double rows = 0, elements = 0;
  each_layer(u, [&](const PlannedLayer& layer, const LayerWay& way) {
    rows += are_rows(way) ? static_cast<double>(layer.weight) : 0;
    elements += static_cast<double>(layer.weight);
  });
  return elements > 0 ? rows / elements : 0;
}

// With offload: gradients go to the host, which updates on a thread of its own; backward waits
// where it is too far ahead.
void UnitProgram::leave(size_t u) {
  const double elements = part_of(u);
  const double bytes = elements * static_cast<double>(model_.sum_bytes);
  const Slot there = program_.copy("to host", Lane::ToHost, bytes / machine_.to_host_per_s);
  const double work = host_update_seconds(model_, machine_, elements, situation_.states);
  beside_.push_back(program_.host_work("update", last_ ? work : 0, there));
  for (; beside_.size() > sharding::kUpdatesBeside; beside_.pop_front())
    program_.host_wait(beside_.front());
}

void UnitProgram::finish() {
  // A graph has the end of its reductions, too. What ranks tell each other beside gradients the
  // host launches behind it, where launches of the program cost nothing.
  if (situation_.graph) limit(0);
  if (!single_) {
    program_.begin_phase("reduce");
    const double launch_s = machine_.launch_us * machine_.in_step.launch * 1e-6;
    program_.compute("reduce", situation_.graph ? machine_.in_step.reduced * launch_s : 0,
                     machine_.in_step.reduced);
  }
  limit(0);
  const bool early = ways_.is_private && !situation_.graph;  // updated with their sums
  if (offloads_) {
    program_.begin_phase(ways_.is_private ? "update" : "optimizer");
    program_.join();
    if (early || std::all_of(units_.begin(), units_.end(), is_offloaded)) return;
  }
  if (early) return;
  update_all(ways_.is_private ? "update" : "optimizer");
}

void UnitProgram::update_all(const char* phase) {
  program_.begin_phase(phase);
  double seconds = 0;
  for (size_t u = 0; u < units_.size(); ++u)
    seconds += is_offloaded(units_[u]) ? 0 : update_time(u);
  program_.compute(phase, seconds, 4);
}

}  // namespace moonshard::plan
