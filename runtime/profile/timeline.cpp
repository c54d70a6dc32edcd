#include "runtime/profile/timeline.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>

#include <ATen/record_function.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "runtime/profile/context.h"

namespace moonshard::profile {
namespace {

// "all_gather blocks.3" -> "all_gather"
std::string operation_of(const std::string& name) {
  return name.substr(0, name.find(' '));
}

CollectiveTimes& entry(std::vector<CollectiveTimes>& list, const std::string& operation) {
  const auto known = std::find_if(list.begin(), list.end(), [&](const CollectiveTimes& times) {
    return times.operation == operation;
  });
  return known != list.end() ? *known : list.emplace_back(CollectiveTimes{operation, 0, 0, 0, 0});
}

bool trace_listens() {
  return at::hasCallbacks();
}

std::string name_in_traces(const char* kind, const std::string& name) {
  return *kind == '\0' ? name : std::string(kind) + " " + name;
}

}  // namespace

using Clock = std::chrono::steady_clock;

struct Timeline::Moment {
  Clock::time_point time;
  std::unique_ptr<c10::Event> event;
};

struct Timeline::Open {
  std::string lane, name;
  bool on_host = false;
  int64_t bytes = 0;
  double modelled_ms = 0;
  std::unique_ptr<Moment> begin, end;
};

Timeline::Timeline(c10::Device device) : device_(device), start_(now(false)) {}
Timeline::~Timeline() = default;

std::unique_ptr<Timeline::Moment> Timeline::now(bool on_host) const {
  auto moment = std::make_unique<Moment>();
  moment->time = Clock::now();
  if (device_.is_cuda() && !on_host) {
    const c10::impl::VirtualGuardImpl guard(device_.type());
    moment->event = std::make_unique<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    moment->event->record(guard.getStream(device_));
  }
  return moment;
}

size_t Timeline::begin(const std::string& lane, const std::string& name, bool on_host) {
  auto span = std::make_unique<Open>();
  span->lane = lane;
  span->name = name;
  span->on_host = on_host;
  span->begin = now(on_host);
  const std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
  return spans_.size() - 1;
}

void Timeline::end(size_t span) {
  bool on_host = false;
  {
    const std::lock_guard lock(mutex_);
    if (span >= spans_.size()) return;
    on_host = spans_[span]->on_host;
  }
  auto moment = now(on_host);
  const std::lock_guard lock(mutex_);
  if (span < spans_.size()) spans_[span]->end = std::move(moment);
}

void Timeline::set_bytes(size_t span, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (span < spans_.size()) spans_[span]->bytes = bytes;
}

void Timeline::set_modelled(size_t span, double ms) {
  const std::lock_guard lock(mutex_);
  if (span < spans_.size()) spans_[span]->modelled_ms = ms;
}

double Timeline::since_start(const Moment& moment) const {
  if (moment.event != nullptr) return start_->event->elapsedTime(*moment.event);
  return std::chrono::duration<double, std::milli>(moment.time - start_->time).count();
}

std::vector<Span> Timeline::finish() {
  const std::lock_guard lock(mutex_);
  std::vector<Span> done;
  for (const auto& span : spans_) {
    if (span->end == nullptr) continue;
    if (span->end->event != nullptr) span->end->event->synchronize();
    done.push_back({span->lane, span->name, since_start(*span->begin), since_start(*span->end),
                    span->bytes, span->modelled_ms});
  }
  std::stable_sort(done.begin(), done.end(),
                   [](const Span& a, const Span& b) { return a.begin_ms < b.begin_ms; });
  return done;
}

double CollectiveTimes::overlap_percent() const {
  if (work_ms <= 0) return 0;
  return std::clamp(100.0 * (1.0 - exposed_ms / work_ms), 0.0, 100.0);
}

std::vector<CollectiveTimes> collective_times(const std::vector<Span>& spans) {
  std::vector<CollectiveTimes> list;
  std::map<std::string, double> free_from;  // per lane: when the work before it is done
  for (const Span& span : spans) {          // by their beginning
    const bool host = span.lane.starts_with(kHostLane);
    const std::string lane = host ? span.lane.substr(std::string(kHostLane).size()) : span.lane;
    const std::string operation = (host ? kHostLane : "") + operation_of(span.name);
    if (lane == kExposedLane) {
      entry(list, operation).exposed_ms += span.end_ms - span.begin_ms;
    } else if (lane.starts_with(kCommLane)) {
      double& busy = free_from[span.lane];
      CollectiveTimes& times = entry(list, operation);
      ++times.count;
      times.bytes += span.bytes;
      // On one device the modelled link has to wait for a gap between compute kernels; a real one
      // would not.
      times.work_ms += span.modelled_ms > 0
                           ? span.modelled_ms
                           : std::max(0.0, span.end_ms - std::max(span.begin_ms, busy));
      busy = std::max(busy, span.end_ms);
    }
  }
  return list;
}

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

Zone::Zone(const char* lane, const std::string& name) : Zone(lane, "", name) {}

Zone::Zone(const char* lane, const char* kind, const std::string& name) {
  std::shared_ptr<Timeline> timeline = recording_timeline();
  if (timeline == nullptr && !trace_listens() && !nvtx_is_on()) return;
  open_ = std::unique_ptr<Open>(
      new Open{std::move(timeline), 0, TraceRange(name_in_traces(kind, name))});
  if (open_->timeline != nullptr) open_->span = open_->timeline->begin(lane, name);
}

Zone::~Zone() {
  if (open_ != nullptr && open_->timeline != nullptr) open_->timeline->end(open_->span);
}

struct TraceZone::Open {
  TraceRange range;
};

TraceZone::TraceZone(const std::string& name) : TraceZone("", name) {}

TraceZone::TraceZone(const char* kind, const std::string& name) {
  if (trace_listens() || nvtx_is_on())
    open_ = std::unique_ptr<Open>(new Open{TraceRange(name_in_traces(kind, name))});
}

TraceZone::~TraceZone() = default;

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
