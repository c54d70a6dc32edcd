// What each moment of the host, and with it everything that was started then, belongs to: the phase
// of the step, the layer, and whether only clipping needs it. Read from the ranges of a trace: our
// own phases and layers by name, PyTorch's backward pass by autograd's operators and its optimizer
// by its range.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tracing/trace_data.h"

namespace moonshard::tracing {

enum class ClipPart : uint8_t {
  None,
  Norms,     ///< work that norms alone need
  Gradients  ///< gradients of samples that stand in for a plain step's gradients
};

struct Label {
  uint32_t phase = 0, layer = 0;  ///< in HostLabels::phases and layers; 0: not known
  ClipPart part = ClipPart::None;
};

/// From here to the next one on its thread.
struct HostSegment {
  double start_us = 0;
  uint32_t op = kNone;  ///< name of the innermost operator or call; kNone: nothing that is traced
  uint32_t label = 0;   ///< in HostLabels::labels
  uint64_t marks = 0;   ///< of all operators, calls and ranges around it
  bool begins = false;  ///< the operator begins here; else it goes on behind another
};

struct HostLabels {
  std::vector<std::string> phases{""}, layers{""};
  std::vector<Label> labels{Label{}};
  std::vector<std::vector<HostSegment>> segments;  ///< by lane; none for devices
  std::vector<uint32_t> label_of;                  ///< by event: of calls and what they started
  std::vector<uint64_t> marks_of;                  ///< by event, likewise
  std::vector<uint32_t> call_of;                   ///< by event on a device; kNone: not known
  bool names_clipping = false;                     ///< ranges tell norms apart

  const Label& of(uint32_t event) const { return labels[label_of[event]]; }
};

/// `marks`: by name, whatever the caller looks for; a moment has those of everything around it.
HostLabels label_hosts(const TraceData& trace, const std::vector<uint64_t>& marks = {});

/// A step of training; the whole trace where it names none.
struct StepWindow {
  double begin_us = 0, end_us = 0;  ///< on the host
  uint32_t lane = kNone;            ///< of the thread that runs it; kNone: no host in the trace
};
std::vector<StepWindow> find_steps(const TraceData& trace);

/// us: clocks of host and device agree no better.
inline constexpr double kSameMoment = 0.5;
/// Of an event on a device: whether its call is in the step or, where that is not known, it begins
/// there.
bool is_of_step(const TraceData& trace, const HostLabels& labels, const StepWindow& step,
                uint32_t event);

}  // namespace moonshard::tracing
