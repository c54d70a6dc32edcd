// A Chrome trace as its analysis needs it: what ran where and when, and which call started which
// kernel. Times in microseconds since the trace's first event.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace moonshard::tracing {

inline constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

enum class EventKind : uint8_t {
  Op,             ///< an operator or a function on a thread of the host
  Annotation,     ///< a range that somebody named
  Call,           ///< of the CUDA runtime or driver
  Kernel,         ///< on a device
  Communication,  ///< a kernel that sends and receives
  Copy            ///< a copy or a fill on a device
};

inline bool runs_on_device(EventKind kind) {
  return kind == EventKind::Kernel || kind == EventKind::Communication || kind == EventKind::Copy;
}

struct TraceEvent {
  double start_us = 0, length_us = 0;
  int64_t correlation = -1;  ///< of a call and what it started; -1: none
  uint32_t name = 0;         ///< in TraceData::names
  uint32_t lane = 0;         ///< in TraceData::lanes
  EventKind kind = EventKind::Op;
  double end_us() const { return start_us + length_us; }
};

/// A thread of the host or a stream of a device.
struct EventLane {
  std::string process, thread;  ///< as in the file
  std::string name;             ///< "thread 2743", "stream 7", or what the trace calls it
  bool is_device = false;
  uint32_t first = 0, last = 0;  ///< its part of TraceData::events
};

/// A stream that waits for an event of another, where the trace says so.
struct StreamWait {
  int64_t correlation = -1;         ///< of the call that makes the stream wait
  int64_t record_correlation = -1;  ///< of the call that recorded the event
  int64_t stream = -1, awaited_stream = -1;
};

struct TraceData {
  std::string file;
  std::vector<std::string> names;
  std::vector<EventLane> lanes;
  std::vector<TraceEvent> events;  ///< by lane, then by start, the longer first
  std::vector<StreamWait> waits;
  int64_t rank = -1, world = 1;    ///< -1: not said
  std::string what;                ///< model and engine, in our own traces
  std::string device;              ///< "NVIDIA H200"; empty without a GPU
  double update_bytes = 0;         ///< what a plain update reads and writes; 0: not said
  bool is_modelled = false;        ///< a plan's simulated step
  uint64_t num_events = 0;         ///< in the file, of all kinds
  double first_us = 0;             ///< of the file's clock
  std::vector<std::string> notes;  ///< what was odd in the file

  const std::string& name_of(const TraceEvent& event) const { return names[event.name]; }
};

}  // namespace moonshard::tracing
