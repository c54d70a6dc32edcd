// Profiling of a step: the ledger of memory and the timeline (details), a Chrome trace, the phase
// log. All off by default, at no cost.
//
// Environment: MOONSHARD_PROFILE=1 (or the older OPACUS_PROFILE_FSDP=1) writes one line per step
// with its phases; =layers (or OPACUS_PROFILE_FSDP_DETAILED=1) adds norms by layer and the squared
// norms before and after they are put together.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/profile/context.h"
#include "runtime/profile/ledger.h"
#include "runtime/profile/timeline.h"
#include "runtime/profile/trace.h"
#include "runtime/records/schema.h"
#include "runtime/train/trainer.h"

namespace moonshard::train {

/// Details of a profiled step.
struct StepDetails {
  profile::LedgerReport memory;
  std::vector<profile::Span> spans;
};

class StepWatch {
 public:
  struct Wishes {
    bool timeline = false;  ///< spans in the reports
    bool details = false;   ///< spans and the ledger
  };
  /// Ends what still records when a step fails.
  class Guard {
   public:
    explicit Guard(StepWatch& watch) : watch_(watch), is_inner_(watch.step_ != nullptr) {}
    ~Guard() {
      if (!is_inner_) watch_.stop();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    StepWatch& watch_;
    bool is_inner_;  ///< in a step inside of a step, which is refused: the outer one goes on
  };

  explicit StepWatch(c10::Device device);
  ~StepWatch();

  void ask_for_trace(int64_t steps, const std::filesystem::path& file);
  /// Whether the next step goes into a trace, also one that a signal has asked for by now.
  bool traces_next_step(int rank);
  void begin(const profile::TraceInfo& who);
  /// Fills in the report's spans and details; writes the log and, after its last step, the trace.
  void end(StepReport& report);
  void stop();
  /// Whether this step's kernels and allocations are recorded one by one.
  bool is_recording() const;
  /// Whether this step goes into a trace; then the trace should know its update.
  bool is_traced() const { return trace_ != nullptr; }
  void set_update_bytes(int64_t bytes) { who_.update_bytes = bytes; }

  Wishes wishes;

 private:
  void take_request(int rank);
  void finish_trace();
  void write_log(const StepReport& report, const std::vector<profile::Span>& spans) const;

  c10::Device device_;
  profile::TraceInfo who_;
  std::unique_ptr<profile::StepScope> step_;  ///< while a step runs
  int64_t trace_steps_ = 0;
  std::filesystem::path trace_file_;
  std::unique_ptr<profile::Trace> trace_;
};

/// Time of the norm computation by part; missing without any.
records::NormTimes norm_times(const std::vector<profile::Span>& spans);
/// Layers in the order of the backward pass; kinds are not filled in.
std::vector<records::LayerTime> layer_times(const std::vector<profile::Span>& spans);

}  // namespace moonshard::train
