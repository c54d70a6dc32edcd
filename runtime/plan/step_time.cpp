#include "runtime/plan/step_time.h"

#include <algorithm>
#include <deque>

#include "runtime/plan/step_costs.h"
#include "runtime/plan/step_streams.h"
#include "runtime/sharding/unit_order.h"

namespace moonshard::plan {
namespace {

// Host time of a layer's backward, over that of its forward: two products and what belongs to them.
constexpr double kBackwardLaunches = 2;

class Simulation {
 public:
  Simulation(const PlannedModel& model, const EngineWays& ways,
             const sharding::ShardingOptions& sharding, const TimeSituation& situation,
             const MachineProfile& machine, std::vector<TraceSpan>* trace)
      : model_(model),
        ways_(ways),
        sharding_(sharding),
        situation_(situation),
        machine_(machine),
        streams_(situation, machine, trace),
        costs_(step_costs(model, ways, situation.samples, sharding.parallel != "fsdp", machine)),
        order_(sharding),
        units_(model.units(sharding, situation.ranks)) {
    parts_ = sharding.parallel == "fsdp";
    holders_ = units_.empty() ? 1 : units_[0].ranks;
    single_ = parts_ ? holders_ == 1 : sharding.parallel == "none" || situation.ranks == 1;
    offloads_ = parts_ && sharding.cpu_offload;
    in_compute_type_ = model.value_bytes == model.compute_bytes || model.splits;
    ready_.assign(units_.size(), std::vector<double>(streams_.ranks().size(), 0));
    gathered_.assign(units_.size(), order_.keeps_whole() && parts_);
    unit_of_stretch_.resize(model.num_stretches());
    for (size_t u = 0; u < units_.size(); ++u)
      for (const size_t stretch : units_[u].stretches) unit_of_stretch_[stretch].push_back(u);
  }

  TimePlan run() {
    const int64_t count = situation_.grad_accum;
    for (int64_t i = 0; i < count; ++i) {
      last_ = i + 1 == count;
      micro_batch();
    }
    finish();
    return streams_.finish();
  }

 private:
  // ---- units -----------------------------------------------------------------------------------
  bool needs_gather() const { return parts_ && (holders_ > 1 || offloads_ || !in_compute_type_); }

  void gather(size_t u) {
    if (gathered_[u] || !parts_) return;
    gathered_[u] = true;
    if (!needs_gather()) return;
    const PlannedUnit& unit = units_[u];
    const double elements = static_cast<double>(
        sharding_.keep_frozen && frozen_is_there_ ? unit.whole_trained() : unit.whole());
    const double bytes = elements * static_cast<double>(model_.compute_bytes);
    if (offloads_) {
      const double part = bytes / static_cast<double>(holders_);
      auto& ranks = streams_.ranks();
      for (size_t r = 0; r < ranks.size(); ++r) {
        const double begin = std::max({ranks[r].to_device, ranks[r].compute, ranks[r].host});
        ranks[r].to_device = begin + part / machine_.to_device_per_s;
        ready_[u][r] = ranks[r].to_device;
        streams_.span(r, "copies", "to device", begin, ranks[r].to_device);
      }
      if (holders_ == 1) return;
    }
    if (holders_ == 1) {
      streams_.compute("cast", 2 * bytes / machine_.element_per_s, 1);
      return;
    }
    const double share = 1 - 1 / static_cast<double>(holders_);
    ready_[u].assign(ready_[u].size(),
                     streams_.collective("all_gather", share * bytes, situation_.link, 2 * bytes,
                                         &Streams::communication));
  }

  void release(size_t u) { gathered_[u] = false; }

  void reduce(size_t u) {
    if (sharding_.no_sync && !last_ && !single_) return;
    const PlannedUnit& unit = units_[u];
    const double size =
        sharding_.reduce_dtype == "bfloat16" ? 2 : static_cast<double>(model_.sum_bytes);
    if (!single_) {
      limit(sharding::kReductionsUnderWay - 1);
      const double row = static_cast<double>(parts_ ? unit.whole_trained() : unit.trained) * size;
      streams_.compute("copy gradients", 2 * row / machine_.element_per_s, 2);
      const double n = static_cast<double>(parts_ ? holders_ : situation_.ranks);
      const double share = (1 - 1 / n) * (parts_ ? 1 : 2);
      const double done =
          streams_.collective(parts_ ? "reduce_scatter" : "all_reduce", share * row,
                              situation_.link, parts_ ? 2 * row / n : row, &Streams::communication);
      in_flight_.push_back({u, done});
    } else if (offloads_) {
      leave(u);
    } else if (updates_early()) {
      update(u);
    }
  }

  bool updates_early() const {
    return ((ways_.is_private && !situation_.graph) || offloads_) && last_;
  }

  void limit(size_t most) {
    while (in_flight_.size() > most) {
      const auto [u, done] = in_flight_.front();
      in_flight_.pop_front();
      streams_.wait(done);
      if (parts_ && sharding_.replicate > 1) {
        const double part = static_cast<double>(units_[u].trained_shard * model_.sum_bytes);
        const double copies = static_cast<double>(sharding_.replicate);
        streams_.wait(streams_.collective("all_reduce copies", 2 * (1 - 1 / copies) * part,
                                          situation_.copies, part, &Streams::copies));
      }
      if (offloads_) {
        leave(u);
      } else if (updates_early()) {
        update(u);
      }
    }
  }

  double part_of(size_t u) const {
    return static_cast<double>(parts_ ? units_[u].trained_shard : units_[u].trained);
  }

  void update(size_t u) {
    const double ms = update_seconds(model_, machine_, part_of(u), situation_.states, rows_of(u),
                                     situation_.noise && ways_.is_private);
    const double before = streams_.ranks()[0].compute;
    streams_.compute("update", ms, 1);
    if (ways_.is_private) streams_.move_to_phase("update", before);
  }

  // Kept gradients per element, where the update reads them instead of a sum.
  double rows_of(size_t u) const {
    if (!single_ || !last_ || !ways_.is_private) return 0;
    double bytes = 0, elements = 0;
    const bool is_block = !units_[u].is_root;
    const auto& layers = is_block ? model_.block : model_.behind;
    const auto& ways = is_block ? ways_.block : ways_.behind;
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto weight = static_cast<double>(layers[i].weight);
      const bool rows = ways[i].kept == Kept::Rows && ways[i].compact;
      bytes += rows ? ways[i].rows_bytes : 4 * weight;
      elements += weight;
    }
    return elements > 0 ? bytes / elements : 0;
  }

  // With offload: gradients go to the host, which updates on a thread of its own; backward waits
  // where it is too far ahead.
  void leave(size_t u) {
    const double elements = part_of(u);
    const double bytes = elements * static_cast<double>(model_.sum_bytes);
    auto& ranks = streams_.ranks();
    for (size_t r = 0; r < ranks.size(); ++r) {
      Streams& rank = ranks[r];
      const double begin = std::max(rank.to_host, rank.compute);
      rank.to_host = begin + bytes / machine_.to_host_per_s;
      streams_.span(r, "copies", "to host", begin, rank.to_host);
      const double value = static_cast<double>(model_.value_bytes);
      const double work =
          elements *
          (2 * value + static_cast<double>(model_.sum_bytes) + 2 * value * situation_.states) /
          machine_.host_update_per_s;
      const double start = std::max(rank.worker, rank.to_host);
      rank.worker = last_ ? start + work : start;
      streams_.span(r, "host", "update", start, rank.worker);
      if (r == 0) beside_.push_back(rank.worker);
    }
    while (beside_.size() > sharding::kUpdatesBeside) {
      for (Streams& rank : streams_.ranks()) rank.host = std::max(rank.host, beside_.front());
      beside_.pop_front();
    }
  }

  // ---- the passes ------------------------------------------------------------------------------
  bool is_recomputed(size_t block) const {
    return situation_.checkpointing != "none" &&
           static_cast<int64_t>(block) % situation_.checkpoint_every == 0;
  }

  void micro_batch() {
    streams_.begin_phase(situation_.graph ? "graph" : "forward");
    const size_t count = model_.num_stretches();
    std::vector<bool> first(units_.size(), true);
    for (size_t i = 0; i < count; ++i) {
      use(i, first, [&](size_t u) {
        order_.when_forward_begins(u, units_.size(), [&](size_t next) { gather(next); });
      });
      const StretchCost& cost = costs_.of(i, count);
      streams_.compute("forward", cost.forward, static_cast<double>(cost.layers));
      for (const size_t u : unit_of_stretch_[i])
        if (parts_ && units_[u].stretches.back() == i &&
            order_.released_after_forward(u, units_.size(), units_[u].is_root))
          release(u);
      if (i == 1) limit(0);  // what the micro-batch before has sent
    }
    frozen_is_there_ = true;
    backward(ways_.two_passes ? 1 : 0);
    if (ways_.two_passes) {
      if (!situation_.graph) streams_.begin_phase("second_backward");
      backward(2);
    } else if (ways_.is_private) {
      if (!situation_.graph) streams_.begin_phase("clipped_sum");
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
      streams_.wait(ready_[u]);
      if (first[u]) began(u);
      first[u] = false;
    }
  }

  void backward(int pass) {
    if (pass < 2 && !situation_.graph) streams_.begin_phase("backward");
    const size_t count = model_.num_stretches();
    std::vector<bool> first(units_.size(), true);
    for (size_t i = count; i-- > 0;) {
      use(i, first, [&](size_t u) {
        order_.when_backward_begins(u, units_.size(), [&](size_t next) { gather(next); });
      });
      const StretchCost& cost = costs_.of(i, count);
      const bool again = i > 0 && i + 1 < count && is_recomputed(i - 1);
      double seconds = cost.backward + (pass == 2 ? cost.sums : cost.norms);
      if (again)
        seconds +=
            cost.forward - (situation_.checkpointing == "keep_attention" ? cost.attention : 0);
      streams_.compute(pass == 2 ? "second backward" : "backward", seconds,
                       static_cast<double>(cost.layers) * (kBackwardLaunches + (again ? 1 : 0)));
      for (const size_t u : unit_of_stretch_[i]) {
        if (units_[u].stretches.front() != i) continue;
        if (parts_) order_.when_backward_ends(u, units_.size(), [&](size_t next) { gather(next); });
        if (parts_ && order_.released_after_backward(units_[u].is_root, pass != 1)) release(u);
        if (!ways_.is_private || pass == 2) reduce(u);
      }
    }
  }

  void sums() {
    const size_t count = model_.num_stretches();
    for (size_t i = 0; i < count; ++i) {
      const StretchCost& cost = costs_.of(i, count);
      streams_.compute("clipped sum", cost.sums, 1);
      for (const size_t u : unit_of_stretch_[i])
        if (units_[u].stretches.back() == i) reduce(u);
    }
  }

  void finish() {
    if (!single_) streams_.begin_phase("reduce");
    limit(0);
    if (offloads_) {
      streams_.begin_phase(ways_.is_private ? "update" : "optimizer");
      for (Streams& rank : streams_.ranks())
        rank.compute = std::max({rank.compute, rank.worker, rank.host});
      return;
    }
    if (ways_.is_private && !situation_.graph) return;  // updated with their sums
    update_all(ways_.is_private ? "update" : "optimizer");
    if (parts_ && order_.keeps_whole())
      for (size_t u = 0; u < units_.size(); ++u) {
        release(u);
        gather(u);  // beside the next step's data
      }
  }

  void update_all(const char* phase) {
    streams_.begin_phase(phase);
    double seconds = 0;
    for (size_t u = 0; u < units_.size(); ++u)
      seconds += update_seconds(model_, machine_, part_of(u), situation_.states, rows_of(u),
                                situation_.noise && ways_.is_private);
    streams_.compute(phase, seconds, 4);
  }

  struct InFlight {
    size_t unit;
    double done;
  };

  const PlannedModel& model_;
  const EngineWays& ways_;
  const sharding::ShardingOptions& sharding_;
  const TimeSituation& situation_;
  const MachineProfile& machine_;
  StepStreams streams_;
  StepCosts costs_;
  sharding::UnitOrder order_;
  const std::vector<PlannedUnit>& units_;
  bool parts_ = false, single_ = true, offloads_ = false, in_compute_type_ = true, last_ = true;
  bool frozen_is_there_ = false;
  int64_t holders_ = 1;
  std::vector<std::vector<double>> ready_;
  std::vector<bool> gathered_;
  std::vector<std::vector<size_t>> unit_of_stretch_;
  std::deque<InFlight> in_flight_;
  std::deque<double> beside_;
};

}  // namespace

TimePlan simulate_step(const PlannedModel& model, const EngineWays& ways,
                       const sharding::ShardingOptions& sharding, const TimeSituation& situation,
                       const MachineProfile& machine, std::vector<TraceSpan>* trace) {
  return Simulation(model, ways, sharding, situation, machine, trace).run();
}

}  // namespace moonshard::plan
