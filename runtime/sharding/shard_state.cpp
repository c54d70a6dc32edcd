#include "runtime/sharding/shard_state.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace moonshard::sharding {
namespace {

using enum Storage;
using enum Phase;

const std::vector<Storage> kAnyStorage{Sharded, Gathering, Whole};
const std::vector<Phase> kAnyPhase{Idle, Forward, ForwardDone, Backward, BackwardDone};

Move stores(Event event, std::vector<Storage> from, std::vector<Phase> phases, Storage to) {
  return {event, std::move(from), std::move(phases), false, to, true, Idle};
}

Move advances(Event event, std::vector<Storage> storages, std::vector<Phase> from, Phase to) {
  return {event, std::move(storages), std::move(from), true, Sharded, false, to};
}

}  // namespace

const std::vector<Move>& legal_moves() {
  static const std::vector<Move> table{
      // Prefetch may gather in any phase.
      stores(Event::StartGather, {Sharded}, kAnyPhase, Gathering),
      stores(Event::FinishGather, {Gathering}, kAnyPhase, Whole),
      // Never while the unit's layers run.
      stores(Event::Release, {Whole}, {Idle, ForwardDone, BackwardDone}, Sharded),
      // The root, whose layers run before all others and behind them.
      stores(Event::StepAside, {Whole}, {Forward, Backward}, Sharded),
      // A unit whose layers the loss does not reach has only run forwards.
      advances(Event::BeginMicroBatch, kAnyStorage, {Idle, ForwardDone, BackwardDone}, Idle),
      advances(Event::UseForward, {Whole}, {Idle, Forward}, Forward),
      advances(Event::EndForward, {Whole}, {Forward}, ForwardDone),
      // Backward may run again: a second pass, or recomputed layers.
      advances(Event::UseBackward, {Whole}, {ForwardDone, Backward, BackwardDone}, Backward),
      advances(Event::EndBackward, {Whole}, {Backward}, BackwardDone),
      // Gradients form during backward (plain training) or later, once clipping factors are known,
      // when the unit's values may be freed already.
      {Event::Reduce,
       kAnyStorage,
       {ForwardDone, Backward, BackwardDone},
       true,
       Sharded,
       true,
       Idle},
      advances(Event::Abandon, kAnyStorage, kAnyPhase, Idle),
  };
  return table;
}

UnitState next_state(const UnitState& state, Event event, const std::string& unit) {
  const auto contains = [](const auto& list, auto item) {
    return std::find(list.begin(), list.end(), item) != list.end();
  };
  for (const Move& move : legal_moves()) {
    if (move.event != event || !contains(move.storages, state.storage) ||
        !contains(move.phases, state.phase))
      continue;
    return {move.keeps_storage ? state.storage : move.next_storage,
            move.keeps_phase ? state.phase : move.next_phase};
  }
  throw InternalError(
      fmt::format("sharding: unit '{}' is {} in phase {}: the event {} is not legal there", unit,
                  name_of(state.storage), name_of(state.phase), name_of(event)));
}

const char* name_of(Storage storage) {
  static constexpr const char* kNames[] = {"sharded", "gathering", "whole"};
  return kNames[static_cast<size_t>(storage)];
}

const char* name_of(Phase phase) {
  static constexpr const char* kNames[] = {"idle", "forward", "forward_done", "backward",
                                           "backward_done"};
  return kNames[static_cast<size_t>(phase)];
}

const char* name_of(Event event) {
  static constexpr const char* kNames[] = {
      "start_gather",      "finish_gather", "release",     "step_aside",
      "begin_micro_batch", "use_forward",   "end_forward", "use_backward",
      "end_backward",      "reduce",        "abandon"};
  return kNames[static_cast<size_t>(event)];
}

}  // namespace moonshard::sharding
