#include "runtime/plan/update_costs.h"

#include <algorithm>
#include <cmath>

namespace moonshard::plan {
namespace {

// Of the numbers that noise_per_s counts, in the update's time.
constexpr double kNoiseShown = 0.25;
// A GPU draws noise beside the memory traffic of the update: the sum of powers that comes near the
// longer of both.
constexpr double kBeside = 4;
// States of 16 bits are made wide, updated and rounded slice by slice (optim/narrow_state.cpp). A
// number is then read and written three times: bytes of all.
constexpr double kSlice = 1 << 22, kWidened = 20;
// Kernels of a slice: casts of two states, update, rounding; of 16-bit values two casts more.
constexpr double kSliceKernels = 4, kValueKernels = 2;
// Of a kernel that has so little to do, in gaps between two kernels.
constexpr double kSmallKernel = 1.5;
// Of the host's update: bytes that its memory moves in the time of an element's arithmetic, of Adam
// and of sgd. In 16 bits that is longer than its own bytes take. Its tiles on all 16 cores of an
// H200's host: 5.7 and 10 billion elements a second, where memory moves 142 GB.
constexpr double kHostAdam = 25, kHostSgd = 14;

}  // namespace

double update_seconds(const PlannedModel& model, const MachineProfile& machine,
                      const UpdatedPart& part, int states, int state_bytes, bool noise) {
  const auto value = static_cast<double>(model.value_bytes);
  const InStep& step = machine.in_step;
  const double gradient =
      part.row_bytes > 0 ? part.row_bytes : static_cast<double>(model.sum_bytes);
  const bool widens = states > 0 && state_bytes == kNarrowState;
  const double own = widens && value < 4 ? kWidened : 2 * value;
  const double state = state_bytes > 0 ? state_bytes : value;
  const double bytes = own + gradient + states * (widens ? kWidened : 2 * state);
  const double moved = bytes / (machine.update_per_s * step.update),
               drawn = noise ? kNoiseShown / machine.noise_per_s : 0;
  const double each =
      machine.is_gpu && drawn > 0
          ? std::pow(std::pow(moved, kBeside) + std::pow(drawn, kBeside), 1 / kBeside)
          : moved + drawn;
  const double slices = widens ? part.pieces + part.elements / kSlice : 0;
  const double kernels = slices * (kSliceKernels + (value < 4 ? kValueKernels : 0));
  return part.elements * each + 1e-6 * (part.tensors * step.tensor_us + part.rows * step.row_us +
                                        kernels * kSmallKernel * machine.gap_us);
}

double host_update_seconds(const PlannedModel& model, const MachineProfile& machine,
                           double elements, int states) {
  const auto value = static_cast<double>(model.value_bytes),
             gradient = static_cast<double>(model.sum_bytes);
  // Gradients are written by the copy and read by the update: both through the host's memory.
  const double moved = 2 * value + 2 * value * states + 2 * gradient;
  const double arithmetic = !machine.is_gpu ? 0 : states > 1 ? kHostAdam : kHostSgd;
  return elements * std::max(moved, arithmetic) / machine.host_update_per_s;
}

}  // namespace moonshard::plan
