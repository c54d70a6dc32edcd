// What the ways to a clipped sum cost on this GPU, for linear layers that read one input: timed
// once per shape on random tensors and remembered per machine (core/tuning.h; `moonshard doctor`
// shows them). Never on a batch: samples that are dropped would change the times, and with them
// the plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace moonshard::privacy {

/// Layers that read one input [samples, positions, in].
struct UnitShape {
  int64_t samples = 0, positions = 0, in = 0;
  std::vector<int64_t> out;  ///< by layer

  std::string text() const;
};

/// Of all of a model's, at the size of the first, with how many there are of each kind: of a shape
/// and what `plans` says of it.
std::string text_of(const std::vector<UnitShape>& units, const std::vector<std::string>& plans);

/// Milliseconds; the update is that of their weights, with noise.
struct WayTimes {
  double ghost = 0, flash = 0;  ///< norms alone, by either kernel
  double sum = 0;               ///< the clipped sum from the kept (a, g)
  double keep = 0;              ///< norms, with each sample's gradient kept in 16 bits
  double update = 0;            ///< from the sum
  double update_rows = 0;       ///< from the kept gradients
  double sum_rows = 0;          ///< the sum of the kept gradients

  double inputs() const;  ///< the whole way through the kept (a, g)
  /// The whole way through kept gradients; `summed`: other ranks need their sum before the update.
  double rows(bool summed) const;
  /// Of as many samples as `samples` times those that were timed.
  WayTimes scaled(double samples) const;
};

/// So many of these are timed together: in a step the layers of a whole block share launches, and
/// small ones alone would be charged for launches that they do not have.
int64_t timed_copies(const UnitShape& shape);

/// Times on the device of `like`, or what is remembered. None where memory is short, or the shape
/// so large that timing it would take longer than a choice is worth.
std::optional<WayTimes> timed_ways(const UnitShape& shape, const at::Tensor& like);

}  // namespace moonshard::privacy
