// Bytes of a layer at the seam: its input, its output's gradient, the gradient of its parameters,
// and what an engine lets go of when it has summed them up; and of groups. Torch-free.
#pragma once

#include "runtime/plan/block_groups.h"
#include "runtime/plan/engine_ways.h"
#include "runtime/plan/partial_sums.h"
#include "runtime/plan/planned_model.h"

namespace moonshard::plan {

class LayerBytes {
 public:
  LayerBytes(const PlannedModel& model, int64_t samples)
      : model_(model),
        samples_(static_cast<double>(samples)),
        rows_(static_cast<double>(samples * model.tokens)),
        on_gpu_(model.fused),
        number_(static_cast<double>(model.compute_bytes)),
        sum_(static_cast<double>(model.sum_bytes)) {}

  /// A tensor of so many bytes, as the device's allocator has it.
  double held(double bytes) const { return model_.held(bytes); }
  /// One with so many numbers of every position.
  double stream(double width) const { return held(rows_ * number_ * width); }

  double input(const PlannedLayer& layer) const {
    return held(positions_of(layer) * static_cast<double>(layer.in) * number_);
  }
  /// Of readers of one input, each has its share.
  double own_input(const PlannedLayer& layer) const {
    return input(layer) / static_cast<double>(layer.readers);
  }
  double output(const PlannedLayer& layer) const {
    return held(positions_of(layer) * static_cast<double>(layer.out) * number_);
  }
  /// Of kept gradients.
  double rows(const LayerWay& way) const { return held(way.rows_bytes); }
  double gradient(const PlannedLayer& layer) const {
    return static_cast<double>((layer.trained ? layer.weight : 0) + layer.bias) * sum_;
  }
  /// What is there beside the gradient of its bias while that is formed, of all samples or of each.
  double bias_working(const PlannedLayer& layer, bool of_each) const {
    if (!on_gpu_ || layer.bias == 0) return 0;
    const double outputs = static_cast<double>(layer.bias), summed = positions_of(layer);
    return of_each ? partial_sums_bytes(samples_ * outputs, summed / samples_)
                   : partial_sums_bytes(outputs, summed);
  }
  /// What a CPU needs beside (a, g) to sum up a matrix's clipped gradients: of the narrower operand
  /// a copy that has the factors, of 16 bits wide ones of both; then the bias's rows, twice.
  double sum_working(const PlannedLayer& layer) const {
    constexpr double kWide = 4;
    if (on_gpu_ || !layer.is_matrix) return 0;
    const auto in = static_cast<double>(layer.in), out = static_cast<double>(layer.out);
    const double copied = !layer.trained ? 0 : number_ < kWide ? in + out : std::min(in, out);
    return std::max(positions_of(layer) * copied, 2 * samples_ * static_cast<double>(layer.bias)) *
           std::max(kWide, number_);
  }
  /// `is_first`: of the first stretch, whose inputs are data.
  double released(const PlannedLayer& layer, const LayerWay& way, bool is_first) const {
    if (way.kept == Kept::Rows) return rows(way);
    const bool has_input = layer.is_matrix && !is_first;
    return output(layer) + (has_input ? own_input(layer) : 0);
  }

 private:
  double positions_of(const PlannedLayer& layer) const {
    return layer.one_position ? samples_ : rows_;
  }
  const PlannedModel& model_;
  double samples_, rows_;
  bool on_gpu_;
  double number_, sum_;
};

/// A layer whose norm waits for the launch of its stretch.
struct PendingLayer {
  const LayerWay* way;
  double both;     ///< bytes of (a, g)
  double working;  ///< LayerBytes::bias_working, of every sample
};

/// A block's groups of layers, with the bytes of their inputs and of all their outputs.
struct GroupBytes {
  GroupBytes(const PlannedModel& model, const BlockGroup& group, const LayerBytes& bytes)
      : in(bytes.stream(group.in)) {
    for (const size_t layer : group.layers)
      out += bytes.stream(static_cast<double>(model.block[layer].out));
  }
  double in, out = 0;
};

}  // namespace moonshard::plan
