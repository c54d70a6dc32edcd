#include "runtime/profile/context.h"

#include <utility>

#include <c10/core/Allocator.h>

#include "runtime/profile/ledger.h"
#include "runtime/profile/out_of_memory.h"
#include "runtime/profile/timeline.h"

namespace moonshard::profile {
namespace {

// LibTorch documents this kind "to pass extra information from the higher layers": the one that it
// leaves to programs.
constexpr auto kContextKind = c10::DebugInfoKind::PRODUCER_INFO;

std::atomic<uint64_t> steps_begun{0};
std::atomic<int64_t> steps_running{0};

// The CUDA allocator reports to the profiler state of the allocating thread.
class AllocatorReports : public c10::MemoryReportingInfoBase {
 public:
  explicit AllocatorReports(bool counts) : counts_(counts) {}
  void reportMemoryUsage(void* block, int64_t bytes, size_t, size_t, c10::Device device) override {
    if (counts_) Ledger::count(block, bytes, device, 0);
  }
  void reportOutOfMemory(int64_t bytes, size_t, size_t, c10::Device device) override {
    note_out_of_memory(bytes, device);
  }
  bool memoryProfilingEnabled() const override { return counts_; }

 private:
  bool counts_;
};

}  // namespace

namespace detail {

std::atomic<int64_t> open_timelines{0};

std::unique_ptr<c10::DebugInfoGuard> listen_to_allocator(bool counts) {
  return std::make_unique<c10::DebugInfoGuard>(c10::DebugInfoKind::PROFILER_STATE,
                                               std::make_shared<AllocatorReports>(counts));
}

}  // namespace detail

std::shared_ptr<Context> current_context() {
  // A host program may use the same kind of debug information for something else.
  auto* context = dynamic_cast<Context*>(c10::ThreadLocalDebugInfo::get(kContextKind));
  return context != nullptr ? context->shared_from_this() : nullptr;
}

void carry_context(const std::shared_ptr<Context>& context) {
  if (context != nullptr) c10::ThreadLocalDebugInfo::_push(kContextKind, context);
}

ContextScope::ContextScope(const std::shared_ptr<Context>& context)
    : guard_(kContextKind, context),
      // OwnerScopes of another context do not apply to this one's memory.
      owner_before_(std::exchange(detail::thread_owner, Owner::Count)) {}

ContextScope::~ContextScope() {
  detail::thread_owner = owner_before_;
}

StepScope::StepScope(c10::Device device, StepRecording wanted)
    : context_(std::make_shared<Context>()) {
  if (const auto around = current_context()) context_->notes = around->notes;
  if (wanted.timeline) context_->timeline = std::make_shared<Timeline>(device);
  if (wanted.ledger) context_->ledger = std::make_shared<Ledger>(device);
  scope_ = std::make_unique<ContextScope>(context_);
  if (wanted.ledger && device.is_cuda()) reports_ = detail::listen_to_allocator(/*counts=*/true);
  if (wanted.timeline) detail::open_timelines.fetch_add(1);
  steps_running.fetch_add(1);
  steps_begun.fetch_add(1);
}

StepScope::~StepScope() {
  reports_.reset();
  scope_.reset();
  if (context_->timeline != nullptr) detail::open_timelines.fetch_sub(1);
  steps_running.fetch_sub(1);
}

StepCounts count_steps() {
  return {steps_begun.load(), steps_running.load()};
}

}  // namespace moonshard::profile
