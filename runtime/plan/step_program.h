// What a rank does in a step, as a list of operations on its streams: written once by step_time.cpp
// and carried out for every simulated rank by program_run.h. Torch-free.
#pragma once

#include <cstdint>
#include <vector>

namespace moonshard::plan {

/// Streams work their operations off in order.
enum class Lane : uint8_t { Host, Compute, Communication, Copies, ToDevice, ToHost, Worker };
inline constexpr size_t kLanes = 7;

/// The ranks of a collective: those that hold a model together, those that hold the same part of it
/// (HSDP), or all.
enum class GroupKind : uint8_t { Shards, Replicas, All };
inline constexpr size_t kGroupKinds = 3;

inline constexpr double kKernelsOfLayer = 2.1;  ///< that the host launches; counted in traces

/// The result of an operation that another waits for.
using Slot = uint32_t;
inline constexpr Slot kNoSlot = ~Slot{0};

struct StepOperation {
  enum class Kind : uint8_t {
    Compute,
    Collective,
    Wait,
    Copy,
    HostWork,
    HostWait,
    Join,
    Phase,
    Launched
  };
  Kind kind = Kind::Compute;
  Lane lane = Lane::Compute;
  GroupKind group = GroupKind::All;
  const char* name = "";
  const char* phase = nullptr;  ///< that its time belongs to, if not the present one
  double seconds = 0;           ///< of a collective: how long it slows the computation down
  double launches = 0;          ///< layers that the host launches
  double bytes = 0;             ///< of a collective: the whole buffer
  double sent = 0;              ///< of it, by each rank of a ring
  Slot slot = kNoSlot;          ///< its own, or the one it waits for
  Slot after = kNoSlot;         ///< begins no sooner
};

class StepProgram {
 public:
  const std::vector<StepOperation>& operations() const { return operations_; }
  size_t num_slots() const { return slots_; }
  void reserve(size_t operations) { operations_.reserve(operations); }

  void begin_phase(const char* name) { add(StepOperation::Kind::Phase).name = name; }

  /// Work on the compute stream, which the host launches so many layers for.
  void compute(const char* name, double seconds, double launches, const char* phase = nullptr) {
    StepOperation& operation = add(StepOperation::Kind::Compute);
    operation.name = name;
    operation.seconds = seconds;
    operation.launches = launches;
    operation.phase = phase;
  }

  /// Begins when all ranks of the group have come and its stream is free. `share`: of the buffer's
  /// bytes, that each rank of a ring sends. `memory_s`: of the
  /// device's memory, which the computation lacks meanwhile.
  Slot collective(const char* name, GroupKind group, Lane lane, double bytes, double share,
                  double memory_s, Slot after = kNoSlot) {
    StepOperation& operation = add(StepOperation::Kind::Collective);
    operation.name = name;
    operation.group = group;
    operation.lane = lane;
    operation.bytes = bytes;
    operation.sent = share * bytes;
    operation.seconds = memory_s;
    operation.after = after;
    return operation.slot = slots_++;
  }

  /// The compute stream waits.
  void wait(Slot slot) { add(StepOperation::Kind::Wait).slot = slot; }

  /// Between host and device, behind what the compute stream has done so far.
  Slot copy(const char* name, Lane lane, double seconds) {
    StepOperation& operation = add(StepOperation::Kind::Copy);
    operation.name = name;
    operation.lane = lane;
    operation.seconds = seconds;
    return operation.slot = slots_++;
  }

  /// On a thread of the host beside the one that launches.
  Slot host_work(const char* name, double seconds, Slot after) {
    StepOperation& operation = add(StepOperation::Kind::HostWork);
    operation.name = name;
    operation.lane = Lane::Worker;
    operation.seconds = seconds;
    operation.after = after;
    return operation.slot = slots_++;
  }

  /// The launching thread waits.
  void host_wait(Slot slot) { add(StepOperation::Kind::HostWait).slot = slot; }

  /// All micro-batches are launched: where the training compares the host's time with the device's.
  void all_launched() { add(StepOperation::Kind::Launched); }

  /// The compute stream waits for both threads of the host.
  void join() { add(StepOperation::Kind::Join); }

 private:
  StepOperation& add(StepOperation::Kind kind) {
    operations_.emplace_back().kind = kind;
    return operations_.back();
  }

  std::vector<StepOperation> operations_;
  Slot slots_ = 0;
};

}  // namespace moonshard::plan
