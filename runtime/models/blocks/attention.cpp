#include "runtime/models/blocks/attention.h"

#include <ATen/ATen.h>

namespace moonshard::models {

RotaryTable rotary_table(int64_t tokens, int64_t head_dim, double base, const at::Tensor& like) {
  // Angles in double: position times frequency loses digits in float32 at long T, and it costs
  // nothing.
  const auto wide = at::TensorOptions().dtype(at::kDouble).device(like.device());
  const at::Tensor exponent = at::arange(0, head_dim, 2, wide) / static_cast<double>(head_dim);
  const at::Tensor frequency = at::pow(at::full({}, base, wide), exponent).reciprocal();
  const at::Tensor angle = at::outer(at::arange(0, tokens, wide), frequency);
  const at::Tensor both = at::cat({angle, angle}, -1);
  return {both.cos().to(like.scalar_type()), both.sin().to(like.scalar_type())};
}

at::Tensor apply_rotary(const at::Tensor& x, const RotaryTable& table) {
  const auto halves = x.chunk(2, -1);
  const at::Tensor turned = at::cat({-halves[1], halves[0]}, -1);
  return x * table.cosines + turned * table.sines;
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const bool grouped = q.size(1) != k.size(1);
  return at::scaled_dot_product_attention(q, k, v, std::nullopt, 0.0, true, std::nullopt, grouped);
}

}  // namespace moonshard::models
