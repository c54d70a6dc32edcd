// What happened when, as spans on named lanes ("compute", "comm"): on a GPU between events of its
// streams, on the CPU by the clock. For the order of events, not for statistics.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "runtime/profile/owner_names.h"

namespace moonshard::profile {

struct Span {
  std::string lane, name;
  double begin_ms = 0, end_ms = 0;  ///< since the timeline's start
  int64_t bytes = 0;                ///< transferred; 0 if unknown
  double modelled_ms = 0;           ///< modelled duration without contention, if any
};

class Timeline {
 public:
  explicit Timeline(c10::Device device);
  ~Timeline();

  /// Begins a span: now, or on a GPU at the current stream's position. Any thread. `on_host`: by
  /// the clock, even if the device is a GPU.
  size_t begin(const std::string& lane, const std::string& name, bool on_host = false);
  void end(size_t span);
  void set_bytes(size_t span, int64_t bytes);
  void set_modelled(size_t span, double ms);
  /// All spans that have ended, by their beginning. Waits for the device.
  std::vector<Span> finish();
  c10::Device device() const { return device_; }

 private:
  struct Moment;
  struct Open;
  std::unique_ptr<Moment> now(bool on_host) const;
  double since_start(const Moment& moment) const;

  c10::Device device_;
  std::unique_ptr<Moment> start_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Open>> spans_;
};

// From spans to figures: how long collectives ran, how long the computation waited for them, and
// what share of communication was overlapped with computation.

/// Lanes that communication writes: work from its start to its end, and the waiting for it.
inline constexpr const char* kCommLane = "comm";
inline constexpr const char* kExposedLane = "exposed";
inline constexpr const char* kHostLane = "host ";  ///< before the lane of messages between hosts

struct CollectiveTimes {
  std::string operation;  ///< "all_gather", …; "host all_reduce" for messages between hosts
  int64_t count = 0, bytes = 0;
  double work_ms = 0, exposed_ms = 0;
  double overlap_percent() const;
};

/// Collectives of one group run one after the other: one that starts while another runs begins to
/// work when that is done.
std::vector<CollectiveTimes> collective_times(const std::vector<Span>& spans);

/// A named section of work, under one name everywhere: a span in the timeline of its step
/// (context.h), a range in a running Kineto trace, an NVTX range under Nsight. When nothing records
/// it costs a check of two flags.
class Zone {
 public:
  Zone(const char* lane, const std::string& name);
  /// Under another name in traces: `kind` and a space before it ("norms model.layers.3").
  Zone(const char* lane, const char* kind, const std::string& name);
  ~Zone();

 private:
  struct Open;
  std::unique_ptr<Open> open_;
};

/// A range of traces only, while it lives: which layer an operation belongs to.
class TraceZone {
 public:
  explicit TraceZone(const std::string& name);
  TraceZone(const char* kind, const std::string& name);
  ~TraceZone();
  TraceZone(const TraceZone&) = delete;
  TraceZone& operator=(const TraceZone&) = delete;

 private:
  struct Open;
  std::unique_ptr<Open> open_;
};

/// A range of traces only, begun and ended by hand: the phases of a step follow each other.
class Range {
 public:
  Range();
  ~Range();
  void begin(const char* name);  ///< ends the one before
  void end();

 private:
  struct Open;
  std::unique_ptr<Open> open_;
};

/// Where this thread's zones go: the timeline of its step; null when that has none.
std::shared_ptr<Timeline> recording_timeline();

/// NVTX ranges: MOONSHARD_NVTX=1, or a process under Nsight Systems.
bool nvtx_is_on();

}  // namespace moonshard::profile
