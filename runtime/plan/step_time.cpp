#include "runtime/plan/step_time.h"

#include <algorithm>

#include "runtime/plan/program_run.h"
#include "runtime/plan/step_costs.h"
#include "runtime/plan/step_program.h"
#include "runtime/plan/unit_program.h"
#include "runtime/sharding/unit_order.h"

namespace moonshard::plan {
namespace {

class Simulation {
 public:
  Simulation(const PlannedModel& model, const StepWays& ways, SharedCosts& shared,
             const sharding::ShardingOptions& sharding, const TimeSituation& situation,
             const MachineProfile& machine)
      : model_(model),
        ways_(ways.last),
        situation_(situation),
        machine_(machine),
        costs_of_earlier_(shared.costs(model, ways.earlier, situation.samples,
                                       sharding.parallel != "fsdp", situation.graph)),
        costs_of_last_(shared.costs(model, ways.last, situation.samples,
                                    sharding.parallel != "fsdp", situation.graph)),
        order_(sharding),
        units_(model.units(sharding, situation.ranks)),
        unit_program_(model, ways.last, sharding, situation, machine, program_) {}

  TimePlan run(std::vector<TraceSpan>* trace) {
    write();
    const double launch_s =
        situation_.graph ? 0 : machine_.launch_us * machine_.in_step.launch * 1e-6;
    return ProgramRun(program_, situation_, unit_program_.ranks_of_a_copy(), launch_s, trace).run();
  }

 private:
  void write() {
    const int64_t count = situation_.grad_accum;
    constexpr size_t kOperations = 16;  // of a stretch through a micro-batch, about
    program_.reserve(static_cast<size_t>(count) * model_.num_stretches() * kOperations);
    host_phase("data", machine_.in_step.data,
               situation_.graph ? machine_.in_step.graph_data_us : 0);
    for (int64_t i = 0; i < count; ++i) {
      const bool is_last = i + 1 == count;
      unit_program_.begin_micro_batch(i == 0, is_last);
      costs_ = is_last ? &costs_of_last_ : &costs_of_earlier_;
      micro_batch(i == 0);
    }
    program_.all_launched();
    unit_program_.finish();
  }

  // ---- the passes ------------------------------------------------------------------------------
  bool is_recomputed(size_t stretch) const {
    return situation_.checkpointing != "none" && model_.kind_of(stretch) == StretchKind::Block &&
           static_cast<int64_t>(stretch - 1) % situation_.checkpoint_every == 0;
  }

  // A phase of a GPU's host, which a profile of CPUs has not.
  void host_phase(const char* phase, double launches, double microseconds = 0) {
    if (launches == 0) return;
    program_.begin_phase(phase);
    program_.compute(phase, microseconds * 1e-6, launches);
  }

  void micro_batch(bool first_of_step) {
    program_.begin_phase(situation_.graph ? "graph" : "forward");
    if (first_of_step && order_.keeps_whole())  // what the step before has updated
      for (size_t u = 0; u < units_.size(); ++u) unit_program_.gather(u);
    const size_t count = model_.num_stretches();
    std::vector<bool> first(units_.size(), true);
    for (size_t i = 0; i < count; ++i) {
      use(i, first, [&](size_t u) {
        order_.when_forward_begins(u, units_.size(), unit_program_.root_steps_aside(),
                                   [&](size_t next) { unit_program_.gather(next); });
      });
      if (i == 1 && unit_program_.root_steps_aside()) unit_program_.release(0);
      const StretchCost& cost = costs_->of(model_.kind_of(i));
      program_.compute("forward", cost.forward, cost.forward_launches);
      for (const size_t u : unit_program_.units_of(i))
        if (unit_program_.has_parts() && units_[u].stretches.back() == i &&
            order_.released_after_forward(u, units_.size(), units_[u].is_root, units_[u].reshards))
          unit_program_.release(u);
      if (i == 1) unit_program_.limit(0);  // what the micro-batch before has sent
    }
    unit_program_.forward_ended();
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
      if (unit_program_.has_parts() && !order_.keeps_whole()) unit_program_.release(u);
  }

  template <class Began>
  void use(size_t stretch, std::vector<bool>& first, const Began& began) {
    if (!unit_program_.has_parts()) return;
    for (const size_t u : unit_program_.units_of(stretch)) {
      unit_program_.use(u);
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
    const auto ahead = [&](size_t u) { unit_program_.gather(u); };
    for (size_t i = count; i-- > model_.first_in_backward;) {
      use(i, first,
          [&](size_t u) { order_.when_backward_begins(u, units_.size(), is_over, ahead); });
      if (i + 2 == count && i > 0 && unit_program_.root_steps_aside()) unit_program_.release(0);
      const StretchCost& cost = costs_->of(model_.kind_of(i));
      const bool again = is_recomputed(i);
      double seconds = cost.backward + (pass == 2 ? cost.sums : cost.norms), first_seconds = 0;
      if (again)
        first_seconds =
            cost.forward - (situation_.checkpointing == "keep_attention" ? cost.attention : 0);
      const double launches =
          cost.backward_launches + (pass == 2 ? cost.sum_launches : cost.norm_launches);
      double done = 0;
      const auto run_to = [&](double share) {
        program_.compute(
            pass == 2 ? "second backward" : "backward", first_seconds + (share - done) * seconds,
            (share - done) * launches + (again && done == 0 ? cost.forward_launches : 0));
        first_seconds = 0;
        done = share;
      };
      for (const size_t u : ending_at(i)) {
        // Plain gradients come one by one, engines form a block's together; units with parts are
        // whole blocks.
        const bool is_early = !ways_.is_private && !unit_program_.has_parts();
        const double share = is_early ? units_[u].ends_after : 1;
        if (share > done) run_to(share);
        over[u] = true;
        if (unit_program_.has_parts()) order_.when_backward_ends(u, units_.size(), is_over, ahead);
        if (unit_program_.has_parts() &&
            order_.released_after_backward(units_[u].is_root, units_[u].reshards, pass != 1))
          unit_program_.release(u);
        if (!ways_.is_private || pass == 2) unit_program_.reduce(u);
      }
      if (done < 1) run_to(1);
    }
  }

  // In the order in which their gradients come.
  std::vector<size_t> ending_at(size_t stretch) const {
    std::vector<size_t> units;
    for (const size_t u : unit_program_.units_of(stretch))
      if (units_[u].backward_ends_at == stretch) units.push_back(u);
    std::ranges::stable_sort(units, {}, [&](size_t u) { return units_[u].ends_after; });
    return units;
  }

  void sums() {
    const size_t count = model_.num_stretches();
    for (size_t i = model_.first_in_backward; i < count; ++i) {
      const StretchCost& cost = costs_->of(model_.kind_of(i));
      program_.compute("clipped sum", cost.sums, 1 + cost.sum_launches);
      for (const size_t u : unit_program_.units_of(i))
        if (units_[u].sums_end_at == i) unit_program_.reduce(u);
    }
  }

  const PlannedModel& model_;
  const EngineWays& ways_;  ///< of the last micro-batch; passes are the same in all
  const TimeSituation& situation_;
  const MachineProfile& machine_;
  StepProgram program_;
  const StepCosts &costs_of_earlier_, &costs_of_last_;
  const StepCosts* costs_ = nullptr;  ///< of the present micro-batch
  sharding::UnitOrder order_;
  const std::vector<PlannedUnit>& units_;
  UnitProgram unit_program_;
};

// Micro-batches behind the first are alike: of many, so many are simulated, and half of them.
constexpr int64_t kSimulated = 32;

void extend(double& whole, double half, double times) {
  whole += (whole - half) * times;
}

// A step of more micro-batches, on the line through two steps of fewer.
void extend(TimePlan& whole, const TimePlan& half, double times) {
  for (double TimePlan::*field :
       {&TimePlan::step_ms, &TimePlan::communication_ms, &TimePlan::exposed_ms,
        &TimePlan::copies_exposed_ms, &TimePlan::compute_ms, &TimePlan::host_ms})
    extend(whole.*field, half.*field, times);
  for (size_t i = 0; i < std::min(whole.phases_ms.size(), half.phases_ms.size()); ++i)
    extend(whole.phases_ms[i].second, half.phases_ms[i].second, times);
  for (size_t i = 0; i < std::min(whole.ranks.size(), half.ranks.size()); ++i)
    for (double RankTime::*field :
         {&RankTime::step_ms, &RankTime::communication_ms, &RankTime::exposed_ms})
      extend(whole.ranks[i].*field, half.ranks[i].*field, times);
  for (size_t i = 0; i < std::min(whole.collectives.size(), half.collectives.size()); ++i)
    for (double CollectiveTime::*field : {&CollectiveTime::count, &CollectiveTime::bytes,
                                          &CollectiveTime::work_ms, &CollectiveTime::exposed_ms})
      extend(whole.collectives[i].*field, half.collectives[i].*field, times);
}

}  // namespace

TimePlan simulate_step(const PlannedModel& model, const StepWays& ways, SharedCosts& shared,
                       const sharding::ShardingOptions& sharding, const TimeSituation& situation,
                       const MachineProfile& machine, std::vector<TraceSpan>* trace) {
  const auto simulate = [&](int64_t micro_batches) {
    TimeSituation other = situation;
    other.grad_accum = micro_batches;
    return Simulation(model, ways, shared, sharding, other, machine).run(trace);
  };
  if (situation.grad_accum <= kSimulated || trace != nullptr) return simulate(situation.grad_accum);
  TimePlan whole = simulate(kSimulated);
  extend(whole, simulate(kSimulated / 2),
         static_cast<double>(situation.grad_accum - kSimulated) / (kSimulated - kSimulated / 2));
  return whole;
}

}  // namespace moonshard::plan
