// A record's parts about memory (schema.h).
#pragma once

#include "runtime/records/schema_fields.h"

namespace moonshard::records {

/// Memory at a moment of the experiment, or in a phase of the watched step.
struct MemoryStage {
  std::string stage;
  double rank = NAN, allocated_bytes = NAN, max_allocated_bytes = NAN, reserved_bytes = NAN,
         max_reserved_bytes = NAN, rss_bytes = NAN;
};
template <class V>
void fields(V& v, MemoryStage& m) {
  v({"stage", Unit::None, "A moment of the experiment, or a phase of the watched step."}, m.stage);
  v({"rank", Unit::Count, "The process whose memory it is, counted from 0."}, m.rank);
  v({"allocated_bytes", Unit::Bytes, "Memory of tensors at that moment."}, m.allocated_bytes);
  v({"max_allocated_bytes", Unit::Bytes,
     "Most memory of tensors up to that moment, or within the phase."},
    m.max_allocated_bytes);
  v({"reserved_bytes", Unit::Bytes,
     "Memory that the allocator had taken from the device at that moment."},
    m.reserved_bytes);
  v({"max_reserved_bytes", Unit::Bytes, "Most that the allocator had taken from the device."},
    m.max_reserved_bytes);
  v({"rss_bytes", Unit::Bytes, "Resident set: host memory of the process."}, m.rss_bytes);
}

struct OwnedBytes {
  std::string owner;
  double bytes = NAN;
};
template <class V>
void fields(V& v, OwnedBytes& o) {
  v({"owner", Unit::None, "Who holds the memory: parameters, activations, ..."}, o.owner);
  v({"bytes", Unit::Bytes, "How much it holds."}, o.bytes);
}

/// Memory within a phase of the watched step.
struct MemoryPhase {
  std::string phase;
  double allocated_bytes = NAN, peak_bytes = NAN;
};
template <class V>
void fields(V& v, MemoryPhase& m) {
  v({"phase", Unit::None, "The phase of the step."}, m.phase);
  v({"allocated_bytes", Unit::Bytes, "Memory of tensors at its end."}, m.allocated_bytes);
  v({"peak_bytes", Unit::Bytes, "Most memory of tensors within it."}, m.peak_bytes);
}

/// Memory through the watched steps. All lists but the last are equally long.
struct MemoryTimeline {
  std::vector<double> ms, total;
  Labels phase;
  std::vector<Named<std::vector<double>>> owners;
  std::vector<double> step_begins_ms;
};
template <class V>
void fields(V& v, MemoryTimeline& m) {
  v({"ms", Unit::Milliseconds, "Time since the first watched step began."}, m.ms);
  v({"total", Unit::Bytes, "Memory of all tensors."}, m.total);
  v({"phase", Unit::None, "Phase of the step at that time."}, m.phase);
  v({"owners", Unit::Bytes, "Memory of each owner."}, m.owners);
  v({"step_begins_ms", Unit::Milliseconds, "When each of several watched steps began."},
    m.step_begins_ms);
}

/// Memory of the watched step, explained by owner; of a point that ran out of memory, of that
/// moment.
struct MemoryPart {
  double peak_bytes = NAN;
  std::string peak_phase;
  double rest_bytes = NAN;
  std::vector<OwnedBytes> breakdown, after_step;
  std::vector<MemoryPhase> phases;
  MemoryTimeline timeline;
};
template <class V>
void fields(V& v, MemoryPart& m) {
  v({"peak_bytes", Unit::Bytes, "Most memory of tensors in the watched step."}, m.peak_bytes);
  v({"peak_phase", Unit::None, "The phase in which that was."}, m.peak_phase);
  v({"rest_bytes", Unit::Bytes, "Memory at the peak that has no owner."}, m.rest_bytes);
  v({"breakdown", Unit::None, "Who held the memory at the peak."}, m.breakdown);
  v({"after_step", Unit::None, "Who held the memory at the end of the step."}, m.after_step);
  v({"phases", Unit::None, "Memory phase by phase."}, m.phases);
  v({"timeline", Unit::None, "Memory through the step."}, m.timeline);
}

}  // namespace moonshard::records
