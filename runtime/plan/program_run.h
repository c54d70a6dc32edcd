// Simulated ranks that carry out a step's program: a discrete-event simulation. Every rank goes
// through its operations until it waits for a transfer that has not ended; then the links
// (link_traffic.h) go on to the next end. A collective begins when the last rank of its group has
// come. Phases are measured as in training, between events of the first rank's compute stream.
// Torch-free.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/plan/link_traffic.h"
#include "runtime/plan/step_program.h"
#include "runtime/plan/step_time.h"
#include "runtime/profile/phases.h"

namespace moonshard::plan {

class ProgramRun {
 public:
  /// `holders`: ranks that hold a model together. `launch_s`: of the host, for one layer.
  ProgramRun(const StepProgram& program, const TimeSituation& situation, int64_t holders,
             double launch_s, std::vector<TraceSpan>* trace);

  TimePlan run();

 private:
  static constexpr size_t kNone = ~size_t{0};

  struct Rank {
    std::array<double, kLanes> lanes{};  ///< seconds since the step began, at which each is free
    double slowness = 1;
    size_t next = 0;  ///< operation
    Slot blocked = kNoSlot;
    double exposed_s = 0;
    const char* phase = "";  ///< that it is in, and since when
    double phase_began = 0;
    /// Times with a transfer under way, in order and apart from each other.
    std::vector<std::pair<double, double>> transferring;
    double& lane(Lane which) { return lanes[static_cast<size_t>(which)]; }
  };
  struct Members {
    std::vector<size_t> ranks;  ///< that are simulated
    Route route;
    /// Transfers of each of the two streams for collectives: those that have begun, and the first
    /// and last of those that wait for one of them to end.
    struct Queue {
      size_t begun = 0, first = kNone, last = kNone;
    };
    std::array<Queue, kLanes> queues;
  };
  struct Transfer {
    Members* group;
    const StepOperation* operation;
    size_t missing;  ///< ranks that have not come
    double begin = 0;
    size_t behind = kNone;  ///< the next one that waits
    bool waits = false;     ///< for those before it on its stream
  };

  void make_groups(const TimeSituation& situation, int64_t holders);
  void go_on(size_t rank);
  /// False where the rank has to wait.
  bool carry_out(size_t rank, const StepOperation& operation);
  void note_wait(size_t rank, const StepOperation& wait, double from, double moment);
  void join_collective(size_t rank, const StepOperation& operation);
  void start(size_t transfer);
  /// Returns the time that no transfer before it had covered.
  static double note_transfer(Rank& rank, double begin, double end);
  void end(size_t transfer);
  double jittered(size_t rank, const StepOperation& operation) const;
  double& slot_of(Slot slot, size_t rank) { return slots_[slot * ranks_.size() + rank]; }
  void span(size_t rank, const char* lane, const char* name, double begin, double end);
  CollectiveTime& times_of(const StepOperation& operation);
  void begin_phase(size_t rank, const char* name);
  void add_to_phase(const std::string& name, double seconds);
  void note_mark();
  void note_launched();

  const StepProgram& program_;
  double launch_s_, first_steps_;
  size_t at_once_;
  double jitter_;
  uint64_t seed_;
  std::vector<TraceSpan>* trace_;
  std::vector<Rank> ranks_;
  std::array<std::vector<Members>, kGroupKinds> groups_;
  std::array<std::vector<size_t>, kGroupKinds> group_of_;  ///< by kind and rank
  LinkTraffic links_;
  std::vector<Transfer> transfers_;
  std::vector<size_t> transfer_of_slot_;    ///< first of its groups
  std::vector<size_t> transfer_of_number_;  ///< as link_traffic numbers them
  std::vector<double> slots_;               ///< by slot and rank; below 0: not known yet
  TimePlan plan_;
  /// Of the first rank: layers launched so far, and when the device has done them.
  struct Launched {
    double layers, done;
  };
  std::vector<Launched> launched_;
  profile::HostShare host_share_;
  bool is_launched_ = false;
};

}  // namespace moonshard::plan
