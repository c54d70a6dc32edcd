#include "runtime/plan/step_streams.h"

#include <algorithm>

namespace moonshard::plan {
namespace {

constexpr double kMs = 1e3;

}  // namespace

StepStreams::StepStreams(const TimeSituation& situation, const MachineProfile& machine,
                         std::vector<TraceSpan>* trace)
    : machine_(machine),
      trace_(trace),
      ranks_(std::max<size_t>(1, situation.slowness.size())),
      launch_s_(situation.graph ? 0 : machine.launch_us * 1e-6) {
  for (size_t r = 0; r < situation.slowness.size(); ++r)
    ranks_[r].slowness = 1 + situation.slowness[r];
}

double StepStreams::now() const {
  double latest = 0;
  for (const Streams& rank : ranks_) latest = std::max({latest, rank.compute, rank.host});
  return latest;
}

void StepStreams::begin_phase(const char* name) {
  end_phase();
  phase_ = name;
}

void StepStreams::end_phase() {
  const double at = ranks_[0].compute;
  add_to_phase(phase_, (at - phase_began_) * kMs);
  phase_began_ = at;
}

void StepStreams::move_to_phase(const char* name, double began) {
  const double ms = (ranks_[0].compute - began) * kMs;
  add_to_phase(name, ms);
  add_to_phase(phase_, -ms);
}

void StepStreams::add_to_phase(const std::string& name, double ms) {
  if (name.empty()) return;
  for (auto& [known, sum] : plan_.phases_ms) {
    if (known != name) continue;
    sum += ms;
    return;
  }
  plan_.phases_ms.emplace_back(name, ms);
}

TimePlan StepStreams::finish() {
  plan_.step_ms = now() * kMs;
  end_phase();
  return std::move(plan_);
}

void StepStreams::span(size_t rank, const char* lane, const char* name, double begin, double end) {
  if (trace_ != nullptr && end > begin)
    trace_->push_back({static_cast<int>(rank), lane, name, begin * kMs, end * kMs});
}

void StepStreams::compute(const std::string& name, double seconds, double launches) {
  const double launching = launches * launch_s_;
  plan_.host_ms += launching * kMs;
  plan_.compute_ms += seconds * kMs;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Streams& rank = ranks_[r];
    const double begin = std::max(rank.compute, rank.host);
    rank.host += launching;
    // The device runs behind the host: it ends no sooner than the last launch.
    rank.compute = std::max(begin + seconds * rank.slowness, rank.host);
    span(r, "compute", name.c_str(), begin, rank.compute);
  }
}

double StepStreams::collective(const char* operation, double bytes, const LinkRate& link,
                               double memory_bytes, double Streams::*stream) {
  double begin = 0;
  for (const Streams& rank : ranks_)
    begin = std::max({begin, rank.*stream, rank.compute, rank.host});
  const double end = begin + link.latency_s + bytes / link.bytes_per_s;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r].*stream = end;
    ranks_[r].compute += memory_bytes / machine_.element_per_s;
    span(r, "communication", operation, begin, end);
  }
  plan_.communication_ms += (end - begin) * kMs;
  return end;
}

void StepStreams::wait(double moment) {
  plan_.exposed_ms += std::max(0.0, moment - ranks_[0].compute) * kMs;
  for (Streams& rank : ranks_) rank.compute = std::max(rank.compute, moment);
}

void StepStreams::wait(const std::vector<double>& moments) {
  plan_.exposed_ms += std::max(0.0, moments[0] - ranks_[0].compute) * kMs;
  for (size_t r = 0; r < ranks_.size(); ++r)
    ranks_[r].compute = std::max(ranks_[r].compute, moments[r]);
}

}  // namespace moonshard::plan
