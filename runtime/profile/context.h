// On whose behalf something is recorded. A context is the phase, the timeline and the ledger of one
// step of one trainer. It is current on the thread that runs the step and on the threads that work
// for it: LibTorch hands its debug information, which carries the context, on to autograd's and
// Gloo's threads. Two trainers of one process therefore share none of it, whether they take turns
// on one thread, run inside of each other, or have a thread each.
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
  std::shared_ptr<Timeline> timeline;       ///< null: nobody asked for spans
  std::shared_ptr<Ledger> ledger;           ///< null: nobody asked whose memory is whose
  std::shared_ptr<OutOfMemoryNotes> notes;  ///< of the OutOfMemoryWatch around it, if any
};

/// This thread's context; null where nothing is recorded on anybody's behalf.
std::shared_ptr<Context> current_context();
/// Puts one on top of what the thread carries, for good; see Trace. ContextScope is the usual way.
void carry_context(const std::shared_ptr<Context>& context);

/// Makes a context current on this thread while it lives. Null changes nothing. For threads that
/// LibTorch knows nothing of: hand current_context() to them.
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

/// What a step is to be recorded with.
struct StepRecording {
  bool timeline = false, ledger = false;
};

/// A step of a trainer, from its beginning to its end, on this thread.
class StepScope {
 public:
  StepScope(c10::Device device, StepRecording wanted);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;
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
/// While the result lives, the CUDA allocator tells of this thread's memory: of failed allocations,
/// and where `counts` is set of all of them.
std::unique_ptr<c10::DebugInfoGuard> listen_to_allocator(bool counts);
extern std::atomic<int64_t> open_timelines;
}  // namespace detail

}  // namespace moonshard::profile
