#include "runtime/profile/zone.h"

#include <cstdlib>
#include <optional>

#include <ATen/record_function.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "runtime/profile/context.h"

namespace moonshard::profile {
namespace {

bool trace_listens() {
  return at::hasCallbacks();
}

}  // namespace

// The range of a trace, and NVTX's with the same name.
struct TraceRange {
  std::optional<at::RecordFunction> function;
  bool nvtx = false;

  explicit TraceRange(const std::string& name) {
    if (trace_listens()) {
      function.emplace(at::RecordScope::USER_SCOPE);
      if (function->isActive()) function->before(name);
    }
    if (nvtx_is_on()) {
      nvtx = true;
      torch::profiler::impl::cudaStubs()->rangePush(name.c_str());
    }
  }
  ~TraceRange() {
    if (nvtx) torch::profiler::impl::cudaStubs()->rangePop();
  }
};

bool nvtx_is_on() {
  static const bool asked = [] {
    const char* own = std::getenv("MOONSHARD_NVTX");
    if (own != nullptr) return std::string(own) != "0" && *own != '\0';
    return std::getenv("NSYS_PROFILING_SESSION_ID") != nullptr;
  }();
  return asked && torch::profiler::impl::cudaStubs()->enabled();
}

std::shared_ptr<Timeline> recording_timeline() {
  if (detail::open_timelines.load(std::memory_order_relaxed) == 0) return nullptr;
  const auto context = current_context();
  return context != nullptr ? context->timeline : nullptr;
}

struct Zone::Open {
  std::shared_ptr<Timeline> timeline;
  size_t span = 0;
  TraceRange range;
};

Zone::Zone(const char* lane, const std::string& name) {
  std::shared_ptr<Timeline> timeline = recording_timeline();
  if (timeline == nullptr && !trace_listens() && !nvtx_is_on()) return;
  open_ = std::unique_ptr<Open>(new Open{std::move(timeline), 0, TraceRange(name)});
  if (open_->timeline != nullptr) open_->span = open_->timeline->begin(lane, name);
}

Zone::~Zone() {
  if (open_ != nullptr && open_->timeline != nullptr) open_->timeline->end(open_->span);
}

struct Range::Open {
  TraceRange range;
};

Range::Range() = default;
Range::~Range() = default;

void Range::begin(const char* name) {
  open_.reset();
  if (trace_listens() || nvtx_is_on()) open_ = std::unique_ptr<Open>(new Open{TraceRange(name)});
}

void Range::end() {
  open_.reset();
}

}  // namespace moonshard::profile
