#include "runtime/profile/timeline.h"

#include <algorithm>
#include <chrono>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace moonshard::profile {

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

}  // namespace moonshard::profile
