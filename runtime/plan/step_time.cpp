#include "runtime/plan/step_time.h"

#include <algorithm>
#include <deque>

#include "runtime/plan/program_run.h"
#include "runtime/plan/step_costs.h"
#include "runtime/plan/step_program.h"
#include "runtime/plan/update_costs.h"
#include "runtime/sharding/unit_order.h"

namespace moonshard::plan {
namespace {

class Simulation {
 public:
  Simulation(const PlannedModel& model, const EngineWays& ways, SharedCosts& shared,
             const sharding::ShardingOptions& sharding, const TimeSituation& situation,
             const MachineProfile& machine)
      : model_(model),
        ways_(ways),
        sharding_(sharding),
        situation_(situation),
        machine_(machine),
        costs_(shared.costs(model, ways, situation.samples, sharding.parallel != "fsdp",
                            situation.graph)),
        order_(sharding),
        units_(model.units(sharding, situation.ranks)) {
    parts_ = sharding.parallel == "fsdp";
    holders_ = units_.empty() ? 1 : units_[0].ranks;
    single_ = parts_ ? holders_ == 1 : sharding.parallel == "none" || situation.ranks == 1;
    offloads_ = std::any_of(units_.begin(), units_.end(), is_offloaded);
    ready_.assign(units_.size(), kNoSlot);
    gathered_.assign(units_.size(), false);
    unit_of_stretch_.resize(model.num_stretches());
    for (size_t u = 0; u < units_.size(); ++u)
      for (const size_t stretch : units_[u].stretches) unit_of_stretch_[stretch].push_back(u);
  }

  TimePlan run(std::vector<TraceSpan>* trace) {
    write();
    const double launch_s =
        situation_.graph ? 0 : machine_.launch_us * machine_.in_step.launch * 1e-6;
    return ProgramRun(program_, situation_, parts_ ? holders_ : situation_.ranks, launch_s, trace)
        .run();
  }

 private:
  void write() {
    const int64_t count = situation_.grad_accum;
    constexpr size_t kOperations = 16;  // of a stretch through a micro-batch, about
    program_.reserve(static_cast<size_t>(count) * model_.num_stretches() * kOperations);
    host_phase("data", machine_.in_step.data,
               situation_.graph ? machine_.in_step.graph_data_us : 0);
    for (int64_t i = 0; i < count; ++i) {
      first_ = i == 0;
      last_ = i + 1 == count;
      micro_batch();
    }
    program_.all_launched();
    finish();
  }

  // ---- units -----------------------------------------------------------------------------------
  bool needs_gather(size_t u) const {
    return parts_ && (holders_ > 1 || units_[u].offloads || !units_[u].in_compute_type);
  }

  void gather(size_t u) {
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
  Slot collective(const char* name, GroupKind group, Lane lane, double bytes, double share,
                  double memory_bytes, Slot after = kNoSlot) {
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

  void release(size_t u) { gathered_[u] = false; }
  static bool is_offloaded(const PlannedUnit& unit) { return unit.offloads; }
  bool root_steps_aside() const {
    return parts_ && order_.steps_aside(units_[0].is_root, units_[0].reshards);
  }

  void reduce(size_t u) {
    const PlannedUnit& unit = units_[u];
    if (unit.trained == 0 || (sharding_.no_sync && !last_ && !single_)) return;
    const double size = unit.narrow_sums ? 2 : static_cast<double>(model_.sum_bytes);
    program_.compute("new", fresh_seconds(machine_, size * static_cast<double>(unit.trained)), 0);
    if (!single_) {
      limit(sharding::kReductionsUnderWay - 1);
      const double row = static_cast<double>(parts_ ? unit.whole_trained() : unit.trained) * size;
      const InStep& step = machine_.in_step;
      program_.compute("copy gradients",
                       2 * row / machine_.element_per_s + fresh_seconds(machine_, row),
                       step.reduce + step.reduced_tensor * static_cast<double>(unit.tensors));
      const double n = static_cast<double>(parts_ ? holders_ : situation_.ranks);
      const double share = (1 - 1 / n) * (parts_ ? 1 : 2);
      in_flight_.push_back(
          {u, last_,
           collective(parts_ ? "reduce_scatter" : "all_reduce",
                      parts_ ? GroupKind::Shards : GroupKind::All, Lane::Communication, row, share,
                      parts_ ? 2 * row / n : row)});
    } else {
      use_sums(u, last_);
    }
  }

  // Sums of a unit are there. On one rank those of later micro-batches are added to the first's.
  void use_sums(size_t u, bool last) {
    if (!first_ && single_ && parts_) {
      constexpr double kAdded = 3;  // both are read, one is written
      program_.compute(
          "add gradients",
          kAdded * part_of(u) * static_cast<double>(model_.sum_bytes) / machine_.element_per_s, 1);
    }
    if (units_[u].offloads) {
      leave(u);
    } else if (ways_.is_private && !situation_.graph && last) {
      update(u);
    }
  }

  // As WrappedModel::limit_reductions: between copies a part travels beside the next units' work.
  void limit(size_t most) {
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

  void finish_across(size_t left) {
    for (; across_.size() > left; across_.pop_front()) {
      program_.wait(across_.front().done);
      use_sums(across_.front().unit, across_.front().last);
    }
  }

  double part_of(size_t u) const {
    return static_cast<double>(parts_ ? units_[u].trained_shard : units_[u].trained);
  }

  void update(size_t u) {
    program_.compute("update", update_time(u), 1, ways_.is_private ? "update" : nullptr);
  }

  double update_time(size_t u) const {
    UpdatedPart part{part_of(u), rows_of(u)};
    const auto tensors = static_cast<double>(units_[u].tensors);
    part.tensors = single_ ? tensors : 1;  // parts of several ranks are one row
    part.pieces = 1 + tensors / static_cast<double>(holders_);
    if (single_ && last_ && ways_.is_private && units_[u].small > 0)
      part.rows = static_cast<double>(situation_.samples);
    return update_seconds(model_, machine_, part, situation_.states, situation_.state_bytes,
                          situation_.noise && ways_.is_private);
  }

  // Kept gradients per element, where the update reads them instead of a sum: bytes that take as
  // long.
  double rows_of(size_t u) const {
    if (!single_ || !last_ || !ways_.is_private) return 0;
    double bytes = 0, elements = 0;
    const bool is_block = !units_[u].is_root;
    const auto& layers = is_block ? model_.block : model_.behind;
    const auto& ways = is_block ? ways_.block : ways_.behind;
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto weight = static_cast<double>(layers[i].weight);
      const bool rows = ways[i].kept == Kept::Rows && ways[i].compact;
      const InStep& step = machine_.in_step;
      const double read = ways[i].joins ? step.rows_read : step.wide_rows_read;
      bytes += rows ? ways[i].rows_bytes / read : 4 * weight;
      elements += weight;
    }
    return elements > 0 ? bytes / elements : 0;
  }

  // With offload: gradients go to the host, which updates on a thread of its own; backward waits
  // where it is too far ahead.
  void leave(size_t u) {
    const double elements = part_of(u);
    const double bytes = elements * static_cast<double>(model_.sum_bytes);
    const Slot there = program_.copy("to host", Lane::ToHost, bytes / machine_.to_host_per_s);
    const double work = host_update_seconds(model_, machine_, elements, situation_.states);
    beside_.push_back(program_.host_work("update", last_ ? work : 0, there));
    for (; beside_.size() > sharding::kUpdatesBeside; beside_.pop_front())
      program_.host_wait(beside_.front());
  }

  // ---- the passes ------------------------------------------------------------------------------
  bool is_recomputed(size_t block) const {
    return situation_.checkpointing != "none" &&
           static_cast<int64_t>(block) % situation_.checkpoint_every == 0;
  }

  // A phase of a GPU's host, which a profile of CPUs has not.
  void host_phase(const char* phase, double launches, double microseconds = 0) {
    if (launches == 0) return;
    program_.begin_phase(phase);
    program_.compute(phase, microseconds * 1e-6, launches);
  }

  void micro_batch() {
    program_.begin_phase(situation_.graph ? "graph" : "forward");
    if (first_ && order_.keeps_whole())  // what the step before has updated
      for (size_t u = 0; u < units_.size(); ++u) gather(u);
    const size_t count = model_.num_stretches();
    std::vector<bool> first(units_.size(), true);
    for (size_t i = 0; i < count; ++i) {
      use(i, first, [&](size_t u) {
        order_.when_forward_begins(u, units_.size(), root_steps_aside(),
                                   [&](size_t next) { gather(next); });
      });
      if (i == 1 && root_steps_aside()) release(0);
      const StretchCost& cost = costs_.of(i, count);
      program_.compute("forward", cost.forward, cost.forward_launches);
      for (const size_t u : unit_of_stretch_[i])
        if (parts_ && units_[u].stretches.back() == i &&
            order_.released_after_forward(u, units_.size(), units_[u].is_root, units_[u].reshards))
          release(u);
      if (i == 1) limit(0);  // what the micro-batch before has sent
    }
    frozen_is_there_ = true;
    backward(ways_.two_passes ? 1 : 0);
    if (ways_.two_passes) {
      if (!situation_.graph) program_.begin_phase("second_backward");
      backward(2);
    } else if (ways_.is_private) {
      if (!situation_.graph) {
        host_phase("clip_factors", machine_.in_step.clip_factors);
        program_.begin_phase("clipped_sum");
      }
      sums();
    }
    for (size_t u = 0; u < units_.size(); ++u)
      if (parts_ && !order_.keeps_whole()) release(u);
  }

  template <class Began>
  void use(size_t stretch, std::vector<bool>& first, const Began& began) {
    if (!parts_) return;
    for (const size_t u : unit_of_stretch_[stretch]) {
      gather(u);
      if (ready_[u] != kNoSlot) program_.wait(ready_[u]);
      if (first[u]) began(u);
      first[u] = false;
    }
  }

  void backward(int pass) {
    if (pass < 2 && !situation_.graph) program_.begin_phase("backward");
    const size_t count = model_.num_stretches();
    std::vector<bool> first(units_.size(), true), over(units_.size());
    for (size_t u = 0; u < units_.size(); ++u) over[u] = units_[u].backward_ends_at == kNoStretch;
    const auto is_over = [&](size_t u) { return over[u]; };
    const auto ahead = [&](size_t u) { gather(u); };
    for (size_t i = count; i-- > model_.first_in_backward;) {
      use(i, first,
          [&](size_t u) { order_.when_backward_begins(u, units_.size(), is_over, ahead); });
      if (i + 2 == count && i > 0 && root_steps_aside()) release(0);
      const StretchCost& cost = costs_.of(i, count);
      const bool again = i > 0 && i + 1 < count && is_recomputed(i - 1);
      double seconds = cost.backward + (pass == 2 ? cost.sums : cost.norms);
      if (again)
        seconds +=
            cost.forward - (situation_.checkpointing == "keep_attention" ? cost.attention : 0);
      program_.compute(pass == 2 ? "second backward" : "backward", seconds,
                       cost.backward_launches + (again ? cost.forward_launches : 0) +
                           (pass == 2 ? cost.sum_launches : cost.norm_launches));
      for (const size_t u : unit_of_stretch_[i]) {
        if (units_[u].backward_ends_at != i) continue;
        over[u] = true;
        if (parts_) order_.when_backward_ends(u, units_.size(), is_over, ahead);
        if (parts_ &&
            order_.released_after_backward(units_[u].is_root, units_[u].reshards, pass != 1))
          release(u);
        if (!ways_.is_private || pass == 2) reduce(u);
      }
    }
  }

  void sums() {
    const size_t count = model_.num_stretches();
    for (size_t i = model_.first_in_backward; i < count; ++i) {
      const StretchCost& cost = costs_.of(i, count);
      program_.compute("clipped sum", cost.sums, 1 + cost.sum_launches);
      for (const size_t u : unit_of_stretch_[i])
        if (units_[u].stretches.back() == i) reduce(u);
    }
  }

  void finish() {
    if (!single_) {
      program_.begin_phase("reduce");
      program_.compute("reduce", 0, machine_.in_step.reduced);
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

  void update_all(const char* phase) {
    program_.begin_phase(phase);
    double seconds = 0;
    for (size_t u = 0; u < units_.size(); ++u)
      seconds += is_offloaded(units_[u]) ? 0 : update_time(u);
    program_.compute(phase, seconds, 4);
  }

  struct UnderWay {
    size_t unit;
    bool last;  ///< of the last micro-batch
    Slot done;
  };

  const PlannedModel& model_;
  const EngineWays& ways_;
  const sharding::ShardingOptions& sharding_;
  const TimeSituation& situation_;
  const MachineProfile& machine_;
  StepProgram program_;
  const StepCosts& costs_;
  sharding::UnitOrder order_;
  const std::vector<PlannedUnit>& units_;
  bool parts_ = false, single_ = true, offloads_ = false, first_ = true, last_ = true;
  bool frozen_is_there_ = false;
  int64_t holders_ = 1;
  std::vector<Slot> ready_;
  std::vector<bool> gathered_;
  std::vector<std::vector<size_t>> unit_of_stretch_;
  std::deque<UnderWay> in_flight_, across_;
  std::deque<Slot> beside_;
};

}  // namespace

TimePlan simulate_step(const PlannedModel& model, const EngineWays& ways, SharedCosts& shared,
                       const sharding::ShardingOptions& sharding, const TimeSituation& situation,
                       const MachineProfile& machine, std::vector<TraceSpan>* trace) {
  return Simulation(model, ways, shared, sharding, situation, machine).run(trace);
}

}  // namespace moonshard::plan
