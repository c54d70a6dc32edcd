// The streams of simulated ranks, and when each is free again: what step_time.h puts a step's
// operations on. Phases are measured as in training, between events of the first rank's compute
// stream. Torch-free.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/machine_profile.h"
#include "runtime/plan/step_time.h"

namespace moonshard::plan {

/// Of one rank, in seconds since the step began.
struct Streams {
  double host = 0, compute = 0, communication = 0, copies = 0;
  double to_device = 0, to_host = 0, worker = 0;
  double slowness = 1;
};

class StepStreams {
 public:
  StepStreams(const TimeSituation& situation, const MachineProfile& machine,
              std::vector<TraceSpan>* trace);

  std::vector<Streams>& ranks() { return ranks_; }
  /// When the last rank has ended.
  double now() const;

  void begin_phase(const char* name);
  /// Seconds of the first rank's compute stream since `began` belong to another phase.
  void move_to_phase(const char* name, double began);
  TimePlan finish();

  /// Work on the compute stream, which the host launches `launches` layers for.
  void compute(const std::string& name, double seconds, double launches);
  /// A collective on a stream: all ranks have come, then the link's time. `memory_bytes`, which it
  /// reads and writes in the device's memory, slow the computation down. Returns when it has ended.
  double collective(const char* operation, double bytes, const LinkRate& link, double memory_bytes,
                    double Streams::*stream);
  /// The compute streams wait for a moment of all ranks, or of each.
  void wait(double moment);
  void wait(const std::vector<double>& moments);
  void span(size_t rank, const char* lane, const char* name, double begin, double end);

 private:
  void end_phase();
  void add_to_phase(const std::string& name, double ms);

  const MachineProfile& machine_;
  std::vector<TraceSpan>* trace_;
  std::vector<Streams> ranks_;
  double launch_s_;
  TimePlan plan_;
  std::string phase_;
  double phase_began_ = 0;
};

}  // namespace moonshard::plan
