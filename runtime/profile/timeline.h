// What happened when, as spans on named lanes ("compute", "comm"): on a GPU between events of its
// streams, on the CPU by the clock. For the order of events, not for statistics.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <c10/core/Device.h>

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
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

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

}  // namespace moonshard::profile
