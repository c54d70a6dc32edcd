// Times the phases of a step. On the CPU by the monotonic clock; on a GPU by events on the compute
// stream, read once at the end of the step, so that timing does not serialise the work.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "runtime/profile/owner_names.h"
#include "runtime/profile/timeline.h"

namespace moonshard::profile {

/// The phase of this thread's context (context.h), or a label set instead ("model"), for error
/// reports. Not recorded outside of steps and watches. The text must be a literal.
std::string current_phase();
void set_current_phase(const char* phase);

/// The host's time as a share of the device's, both since a step began, at the end of the phase
/// where it is least. Near 1, the device waited for the host all along. The share at the end alone
/// would say less: a host that is far ahead waits, too, for room in CUDA's queue of launches.
class HostShare {
 public:
  void add(double host_ms, double device_ms) { moments_.push_back({host_ms, device_ms}); }
  double least() const;

 private:
  /// Earlier moments have too little behind them: of a step, and of a long one.
  static constexpr double kBegun = 0.1, kBegunMs = 5;
  struct Moment {
    double host, device;
  };
  std::vector<Moment> moments_;
};

class PhaseTimer {
 public:
  explicit PhaseTimer(c10::Device device);
  ~PhaseTimer();
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  /// Ends the running phase, if any, and begins this one.
  void begin(const char* phase);
  /// Counts time inside the running phase as another phase; the running one resumes afterwards. On
  /// any thread that the step waits for. Trace ranges are per thread, and the ledger's phases are
  /// consecutive: neither is changed.
  class Inside {
   public:
    Inside(PhaseTimer& timer, const char* phase);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    PhaseTimer& timer_;
    const char* outer_;
  };

  /// The host has launched what the step computes; what follows may wait for it.
  void all_launched();
  /// After finish(): HostShare up to all_launched(); 0 when it was not asked.
  double host_share() const { return host_share_; }

  /// Ends the last phase; returns (phase, milliseconds) in order. A phase entered twice is summed.
  std::vector<std::pair<std::string, double>> finish();

 private:
  struct Mark;
  void mark(const char* phase);
  void enter(const char* phase);

  c10::Device device_;
  const char* running_ = nullptr;
  size_t launched_ = 0;  ///< place of all_launched's mark; 0 is none
  double host_share_ = 0;
  std::vector<std::unique_ptr<Mark>> marks_;
  Range range_;
};

}  // namespace moonshard::profile
