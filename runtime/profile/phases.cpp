#include "runtime/profile/phases.h"

#include <algorithm>
#include <chrono>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/profile/context.h"
#include "runtime/profile/ledger.h"

namespace moonshard::profile {

std::string current_phase() {
  const auto context = current_context();
  return context != nullptr ? context->phase.load() : "";
}

void set_current_phase(const char* phase) {
  if (const auto context = current_context()) context->phase.store(phase);
}

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// A moment of the host; on a GPU, where it has an event in the stream, that is when it was
// launched.
struct PhaseTimer::Mark {
  const char* phase;
  Clock::time_point time;
  std::unique_ptr<c10::Event> event;
};

PhaseTimer::PhaseTimer(c10::Device device) : device_(device) {}
PhaseTimer::~PhaseTimer() = default;

void PhaseTimer::mark(const char* phase) {
  auto mark = std::make_unique<Mark>();
  mark->phase = phase;
  mark->time = Clock::now();
  if (device_.is_cuda()) {
    const c10::impl::VirtualGuardImpl guard(device_.type());
    // BACKEND_DEFAULT is the flag under which CUDA events keep their time.
    mark->event = std::make_unique<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    mark->event->record(guard.getStream(device_));
  }
  marks_.push_back(std::move(mark));
}

void PhaseTimer::enter(const char* phase) {
  mark(phase);
  running_ = phase;
  set_current_phase(phase);
}

void PhaseTimer::begin(const char* phase) {
  enter(phase);
  range_.begin(phase);
  const auto context = current_context();
  if (context != nullptr && context->ledger != nullptr) context->ledger->enter_phase(phase);
}

PhaseTimer::Inside::Inside(PhaseTimer& timer, const char* phase)
    : timer_(timer), outer_(timer.running_) {
  timer_.enter(phase);
}

PhaseTimer::Inside::~Inside() {
  timer_.enter(outer_ != nullptr ? outer_ : "");
}

void PhaseTimer::all_launched() {
  if (marks_.empty()) return;
  mark(running_);
  launched_ = marks_.size() - 1;
}

double HostShare::least() const {
  const double end = moments_.empty() ? 0 : moments_.back().device;
  if (end <= 0) return 0;
  double least = 1;
  for (const Moment& moment : moments_)
    if (moment.device >= std::min(kBegunMs, kBegun * end))
      least = std::min(least, moment.host / moment.device);
  return least;
}

std::vector<std::pair<std::string, double>> PhaseTimer::finish() {
  std::vector<std::pair<std::string, double>> phases;
  if (marks_.empty()) return phases;
  mark(nullptr);
  running_ = nullptr;
  range_.end();
  set_current_phase("");
  if (device_.is_cuda()) marks_.back()->event->synchronize();
  double device = 0;
  HostShare share;
  for (size_t i = 0; i + 1 < marks_.size(); ++i) {
    const Mark &from = *marks_[i], &to = *marks_[i + 1];
    const double ms =
        device_.is_cuda() ? from.event->elapsedTime(*to.event) : milliseconds(from.time, to.time);
    device += ms;
    if (i + 1 <= launched_) share.add(milliseconds(marks_.front()->time, to.time), device);
    const auto known = std::find_if(phases.begin(), phases.end(),
                                    [&](const auto& entry) { return entry.first == from.phase; });
    if (known != phases.end()) {
      known->second += ms;
    } else {
      phases.emplace_back(from.phase, ms);
    }
  }
  if (launched_ > 0) host_share_ = share.least();
  launched_ = 0;
  marks_.clear();
  return phases;
}

}  // namespace moonshard::profile
