#include "runtime/models/blocks/positions.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/rotary/rotary.h"
#include "runtime/models/blocks/param_ops.h"

namespace moonshard::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A rotation's backward is the rotation back, of the gradients that the attention has just made.
struct RotaryFunction : torch::autograd::Function<RotaryFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& cosines, const at::Tensor& sines) {
    context->save_for_backward({cosines, sines});
    // New tensors in the old memory: outputs of their own, not modified inputs, to autograd.
    at::Tensor turned_q = q.variable_data(), turned_k = k.variable_data();
    kernels::rotate_in_place(turned_q, turned_k, cosines, sines, /*inverse=*/false);
    return {turned_q, turned_k};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    at::Tensor q = gradients[0].contiguous(), k = gradients[1].contiguous();
    kernels::rotate_in_place(q, k, saved[0], saved[1], /*inverse=*/true);
    return {q, k, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor rotary_frequencies(int64_t head_dim, const RotaryOptions& options, c10::Device device) {
  const auto wide = at::TensorOptions().dtype(at::kDouble).device(device);
  const at::Tensor exponent = at::arange(0, head_dim, 2, wide) / static_cast<double>(head_dim);
  const at::Tensor frequency = at::pow(at::full({}, options.base, wide), exponent).reciprocal();
  if (options.linear_scaling) return frequency / options.factor;
  if (!options.llama3_scaling) return frequency;
  // How often the wave fits into the original context decides; the clamp makes the three bands one
  // formula: 0 is long (stretched), 1 is short (kept).
  constexpr double kTwoPi = 6.283185307179586476925;
  const at::Tensor turns = frequency * (static_cast<double>(options.original_length) / kTwoPi);
  const at::Tensor kept =
      ((turns - options.low_freq_factor) / (options.high_freq_factor - options.low_freq_factor))
          .clamp(0, 1);
  return frequency * (kept + (1 - kept) / options.factor);
}

RotaryTable rotary_table(int64_t tokens, int64_t head_dim, const RotaryOptions& options,
                         const at::Tensor& like, bool fused_allowed) {
  const at::Tensor positions = at::arange(tokens, like.options().dtype(at::kLong));
  return rotary_table_at(positions, head_dim, options, like, fused_allowed);
}

RotaryTable rotary_table_at(const at::Tensor& positions, int64_t head_dim,
                            const RotaryOptions& options, const at::Tensor& like,
                            bool fused_allowed) {
  const at::Tensor frequency = rotary_frequencies(head_dim, options, like.device());
  const at::Tensor angle = at::outer(positions.to(frequency.scalar_type()), frequency);
  const auto type = like.scalar_type(), wide = type == at::kDouble ? at::kDouble : at::kFloat;
  if (fused_allowed && takes_fused_form(kernels::rotary_kernel_runs(like)))
    return {angle.cos().to(type).to(wide), angle.sin().to(type).to(wide), true};
  const at::Tensor both = at::cat({angle, angle}, -1);
  return {both.cos().to(type), both.sin().to(type), false};
}

at::Tensor apply_rotary(const at::Tensor& x, const RotaryTable& table) {
  const auto halves = x.chunk(2, -1);
  const at::Tensor turned = at::cat({-halves[1], halves[0]}, -1);
  return x * table.cosines + turned * table.sines;
}

RotatedHeads rotate_in_place(const at::Tensor& q, const at::Tensor& k, const RotaryTable& table) {
  const auto both = RotaryFunction::apply(q, k, table.cosines, table.sines);
  return {both[0], both[1]};
}

at::Tensor rotate_in_place(const at::Tensor& x, const RotaryTable& table) {
  return rotate_in_place(x, x.new_empty({x.size(0), x.size(1), 0}), table).q;
}

at::Tensor sincos_positions(int64_t side, int64_t width, const at::TensorOptions& options) {
  const auto wide = options.dtype(at::kDouble);
  const int64_t quarter = width / 4;
  const at::Tensor exponent = at::arange(quarter, wide) / static_cast<double>(quarter);
  const at::Tensor frequency = at::pow(at::full({}, 10000.0, wide), exponent).reciprocal();
  const at::Tensor angle = at::outer(at::arange(side, wide), frequency);  // [side, width / 4]
  const at::Tensor half = at::cat({angle.sin(), angle.cos()}, -1);
  const at::Tensor columns = half.unsqueeze(0).expand({side, side, 2 * quarter});
  const at::Tensor rows = half.unsqueeze(1).expand({side, side, 2 * quarter});
  return at::cat({columns, rows}, -1).view({1, side * side, width}).to(options.dtype());
}

at::Tensor timestep_features(const at::Tensor& timesteps, at::ScalarType type) {
  constexpr int64_t kHalf = kTimestepFrequencies / 2;
  // Angles in double, as those of the positions are.
  const auto wide = timesteps.options().dtype(at::kDouble);
  const at::Tensor exponent = at::arange(kHalf, wide) / static_cast<double>(kHalf);
  const at::Tensor frequency = at::pow(at::full({}, 10000.0, wide), exponent).reciprocal();
  const at::Tensor angle = at::outer(timesteps.to(at::kDouble), frequency);
  return at::cat({angle.cos(), angle.sin()}, -1).to(type);
}

}  // namespace moonshard::models
