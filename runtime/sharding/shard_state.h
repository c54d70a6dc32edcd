// A unit's state: where its values are (storage) and how far the step is (phase). Every change goes
// through the one table below; a transition that is not in it is a bug, and the error names the
// unit, its state and the event.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moonshard::sharding {

enum class Storage : uint8_t {
  Sharded,    ///< only this rank's part
  Gathering,  ///< all-gather in progress
  Whole       ///< all values, in the compute dtype
};

enum class Phase : uint8_t {
  Idle,          ///< nothing of this micro-batch has used it
  Forward,       ///< its layers are running
  ForwardDone,   ///< all its layers have run
  Backward,      ///< its layers run backwards (or again, when they are checkpointed)
  BackwardDone,  ///< all its layers have run backwards
};

enum class Event : uint8_t {
  StartGather,
  FinishGather,
  Release,
  StepAside,  ///< released between two uses of one pass, while other units run
  BeginMicroBatch,
  UseForward,
  EndForward,
  UseBackward,
  EndBackward,
  Reduce,  ///< its gradient is complete and is being reduced
  Abandon  ///< the step failed: back to the start
};

inline constexpr Storage kStorages[] = {Storage::Sharded, Storage::Gathering, Storage::Whole};
inline constexpr Phase kPhases[] = {Phase::Idle, Phase::Forward, Phase::ForwardDone,
                                    Phase::Backward, Phase::BackwardDone};
inline constexpr Event kEvents[] = {Event::StartGather, Event::FinishGather,    Event::Release,
                                    Event::StepAside,   Event::BeginMicroBatch, Event::UseForward,
                                    Event::EndForward,  Event::UseBackward,     Event::EndBackward,
                                    Event::Reduce,      Event::Abandon};

const char* name_of(Storage storage);
const char* name_of(Phase phase);
const char* name_of(Event event);

struct UnitState {
  Storage storage = Storage::Sharded;
  Phase phase = Phase::Idle;
  bool operator==(const UnitState&) const = default;
};

/// A row of the table: in any of these storages and phases the event leads to the next state;
/// `keeps_…` leaves that half unchanged.
struct Move {
  Event event;
  std::vector<Storage> storages;
  std::vector<Phase> phases;
  bool keeps_storage;
  Storage next_storage;
  bool keeps_phase;
  Phase next_phase;
};
const std::vector<Move>& legal_moves();

/// The state after the event. Throws InternalError that names unit, state and event when the table
/// has no such transition.
UnitState next_state(const UnitState& state, Event event, const std::string& unit);

}  // namespace moonshard::sharding
