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
  std::unique_ptr<Moment> begin, end;
};

Timeline::Timeline(c10::Device device) : device_(device), start_(now()) {}
Timeline::~Timeline() = default;

std::unique_ptr<Timeline::Moment> Timeline::now() const {
  auto moment = std::make_unique<Moment>();
  if (device_.is_cuda()) {
    const c10::impl::VirtualGuardImpl guard(device_.type());
    moment->event = std::make_unique<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    moment->event->record(guard.getStream(device_));
  } else {
    moment->time = Clock::now();
  }
  return moment;
}

size_t Timeline::begin(const std::string& lane, const std::string& name) {
  auto span = std::make_unique<Open>();
  span->lane = lane;
  span->name = name;
  span->begin = now();
  const std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
  return spans_.size() - 1;
}

void Timeline::end(size_t span) {
  auto moment = now();
  const std::lock_guard lock(mutex_);
  if (span < spans_.size()) spans_[span]->end = std::move(moment);
}

double Timeline::since_start(const Moment& moment) const {
  if (device_.is_cuda()) return start_->event->elapsedTime(*moment.event);
  return std::chrono::duration<double, std::milli>(moment.time - start_->time).count();
}

std::vector<Span> Timeline::finish() {
  const std::lock_guard lock(mutex_);
  std::vector<Span> done;
  for (const auto& span : spans_) {
    if (span->end == nullptr) continue;
    if (device_.is_cuda()) span->end->event->synchronize();
    done.push_back({span->lane, span->name, since_start(*span->begin), since_start(*span->end)});
  }
  std::stable_sort(done.begin(), done.end(),
                   [](const Span& a, const Span& b) { return a.begin_ms < b.begin_ms; });
  return done;
}

}  // namespace moonshard::profile
