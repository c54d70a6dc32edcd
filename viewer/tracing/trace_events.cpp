#include "viewer/tracing/trace_events.h"

#include <algorithm>

#include "runtime/input/json_fields.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxCounters = 1000, kMaxProblems = 100;

// Kineto's words for what runs on a device rather than on a thread of the host.
bool runs_on_gpu(std::string_view category) {
  return category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset" ||
         category == "gpu_user_annotation" || category == "concurrent_kernel";
}

}  // namespace

std::optional<uint32_t> RawTrace::lane(std::string_view process, std::string_view thread) {
  process = process.substr(0, kMaxNameBytes);
  thread = thread.substr(0, kMaxNameBytes);
  key_.assign(std::to_string(files.size()));
  key_ += '\n';
  key_ += process;
  key_ += '\n';
  key_ += thread;
  if (key_ == last_key_) return last_lane_;
  last_key_ = key_;
  const auto place = lane_places_.find(key_);
  if (place != lane_places_.end()) {
    last_lane_ = place->second;
  } else if (lanes.size() >= limits.max_lanes) {
    last_lane_ = std::nullopt;
  } else {
    last_lane_ = static_cast<uint32_t>(lanes.size());
    lane_places_.emplace(key_, *last_lane_);
    lanes.push_back({.file = static_cast<uint32_t>(files.size() - 1),
                     .process = std::string(process),
                     .thread = std::string(thread)});
  }
  return last_lane_;
}

void RawTrace::add_span(uint32_t lane_number, std::string_view name, std::string_view category,
                        double start_us, double length_us) {
  RawLane& lane = lanes[lane_number];
  if (length_us < 0) lane.open.push_back(static_cast<uint32_t>(lane.events.size()));
  lane.events.push_back({start_us, length_us, names.number(name),
                         static_cast<uint16_t>(categories.number(category))});
  num_events += 1;
  if (runs_on_gpu(category)) lane.num_gpu_events += 1;
  files.back().include(start_us, start_us + std::max(length_us, 0.0));
}

void RawTrace::end_span(uint32_t lane_number, double end_us) {
  RawLane& lane = lanes[lane_number];
  if (lane.open.empty()) {
    num_unmatched_ends += 1;
    return;
  }
  TraceEvent& event = lane.events[lane.open.back()];
  lane.open.pop_back();
  event.length_us = std::max(0.0, end_us - event.start_us);
  files.back().last_us = std::max(files.back().last_us, end_us);
}

void RawTrace::add_counter(const std::string& name, double time_us, double value) {
  const std::string key = std::to_string(files.size()) + '\n' + cut_text(name, kMaxNameBytes);
  auto place = counter_places_.find(key);
  if (place == counter_places_.end()) {
    if (counters.size() >= kMaxCounters) {
      num_skipped += 1;
      return;
    }
    place = counter_places_.emplace(key, static_cast<uint32_t>(counters.size())).first;
    counters.push_back(
        {static_cast<uint32_t>(files.size() - 1), cut_text(name, kMaxNameBytes), {}});
  }
  counters[place->second].points.emplace_back(time_us, value);
  num_counter_points += 1;
  files.back().include(time_us, time_us);
}

void RawTrace::add_problem(std::string text) {
  if (problems.size() < kMaxProblems) problems.push_back(std::move(text));
}

}  // namespace moonshard::viewer
