// Attributes recordings to a step. A context is the phase, the timeline and the ledger of one step
// of one trainer. It is current on the thread that runs the step and on the threads that work for
// it: LibTorch propagates its debug information, which carries the context, to autograd's and
// Gloo's threads. Two trainers of one process therefore share none of it, whether they alternate on
// one thread, nest, or have a thread each.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "runtime/profile/owner_names.h"

namespace moonshard::profile {

class Ledger;
class Timeline;
struct OutOfMemoryNotes;

struct Context : c10::DebugInfoBase, std::enable_shared_from_this<Context> {
  std::atomic<const char*> phase{""};       ///< that runs now; a literal
  std::shared_ptr<Timeline> timeline;       ///< null: spans are not recorded
  std::shared_ptr<Ledger> ledger;           ///< null: memory owners are not recorded
  std::shared_ptr<OutOfMemoryNotes> notes;  ///< of the OutOfMemoryWatch around it, if any
};

/// This thread's context; null where nothing is recorded.
std::shared_ptr<Context> current_context();
/// Pushes one onto the thread's stack permanently; see Trace. ContextScope is the usual way.
void carry_context(const std::shared_ptr<Context>& context);

/// Makes a context current on this thread while it lives. Null changes nothing. Threads that
/// LibTorch does not manage must be passed current_context().
class ContextScope {
 public:
  explicit ContextScope(const std::shared_ptr<Context>& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  c10::DebugInfoGuard guard_;
  Owner owner_before_;
};

/// What to record during a step.
struct StepRecording {
  bool timeline = false, ledger = false;
};

/// A step of a trainer, from begin to end, on this thread.
class StepScope {
 public:
  StepScope(c10::Device device, StepRecording wanted);
  ~StepScope();
  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  std::shared_ptr<Context> context_;
  std::unique_ptr<ContextScope> scope_;
  std::unique_ptr<c10::DebugInfoGuard> reports_;
};

/// Steps that have begun in this process, and those that have not ended yet.
struct StepCounts {
  uint64_t begun = 0;
  int64_t running = 0;
};
StepCounts count_steps();

namespace detail {
/// While the result lives, the CUDA allocator reports this thread's failed allocations, and with
/// `counts` all allocations.
std::unique_ptr<c10::DebugInfoGuard> listen_to_allocator(bool counts);
extern std::atomic<int64_t> open_timelines;
}  // namespace detail

}  // namespace moonshard::profile
