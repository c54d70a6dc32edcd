// A named section of work, under one name everywhere: a span in the timeline of its step
// (context.h), a range in a running Kineto trace, an NVTX range under Nsight. When nothing records
// it costs a check of two flags.
#pragma once

#include <memory>
#include <string>

#include "runtime/profile/timeline.h"

namespace moonshard::profile {

class Zone {
 public:
  Zone(const char* lane, const std::string& name);
  ~Zone();
  Zone(const Zone&) = delete;
  Zone& operator=(const Zone&) = delete;

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
