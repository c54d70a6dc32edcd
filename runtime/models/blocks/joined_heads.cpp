#include "runtime/models/blocks/joined_heads.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace moonshard::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// In numbers of 16 bytes where the layout allows it: LibTorch copies strided tensors number by
// number, and 16-bit ones at a third of the speed of memory.
at::Tensor in_wide_numbers(const at::Tensor& x) {
  constexpr int64_t kWide = 16;
  const auto size = static_cast<int64_t>(x.element_size());
  const int64_t per_number = kWide / size;
  bool fits = x.stride(-1) == 1 && x.size(-1) % per_number == 0 &&
              reinterpret_cast<uintptr_t>(x.data_ptr()) % kWide == 0;
  for (int64_t dim = 0; dim + 1 < x.dim(); ++dim) fits = fits && x.stride(dim) % per_number == 0;
  return fits ? x.view(at::kComplexDouble) : x;
}

struct HeadsFunction : torch::autograd::Function<HeadsFunction> {
  static variable_list forward(AutogradContext*, const at::Tensor& qkv, int64_t heads,
                               int64_t head_dim) {
    const auto parts =
        qkv.view({qkv.size(0), qkv.size(1), 3, heads, head_dim}).permute({2, 0, 3, 1, 4}).unbind(0);
    return {parts[0], parts[1], parts[2]};
  }

  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    at::Tensor any;
    for (const at::Tensor& one : gradients)
      if (one.defined()) any = one;
    if (!any.defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    const int64_t B = any.size(0), H = any.size(1), T = any.size(2), d = any.size(3);
    const at::Tensor joined = at::empty({B, T, 3, H, d}, any.options());
    for (int64_t part = 0; part < 3; ++part) {
      const at::Tensor to = joined.select(2, part);
      const at::Tensor& from = gradients[static_cast<size_t>(part)];
      if (!from.defined()) {
        to.zero_();
        continue;
      }
      const at::Tensor source = from.transpose(1, 2), wide = in_wide_numbers(source),
                       target = in_wide_numbers(to);
      if (wide.scalar_type() == target.scalar_type()) {
        target.copy_(wide);
      } else {
        to.copy_(source);
      }
    }
    return {joined.view({B, T, 3 * H * d}), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

std::array<at::Tensor, 3> heads_of(const at::Tensor& qkv, int64_t heads, int64_t head_dim) {
  const variable_list parts = HeadsFunction::apply(qkv, heads, head_dim);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace moonshard::models
