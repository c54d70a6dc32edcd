// A tensor in pieces of bounded size, in the order of its elements: files of any size are converted
// without a second copy of a whole tensor.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/ATen.h>

namespace moonshard::weights {

inline constexpr int64_t kPieceBytes = 16 << 20;

/// Calls visit(piece) with views of at most `max_elements` elements each. The views may have any
/// shape and strides; one after another they are the tensor in row-major order.
template <class F>
void for_each_piece(const at::Tensor& tensor, int64_t max_elements, const F& visit) {
  if (tensor.numel() == 0) return;
  if (tensor.numel() <= max_elements) {
    visit(tensor);
    return;
  }
  // A tensor with elements in one block is cut anywhere, every other one along its first dimension.
  const at::Tensor rows = tensor.is_contiguous() ? tensor.view(-1) : tensor;
  const int64_t count = rows.size(0), row_elements = rows.numel() / count;
  if (row_elements > max_elements) {
    for (int64_t i = 0; i < count; ++i) for_each_piece(rows.select(0, i), max_elements, visit);
    return;
  }
  const int64_t step = std::max<int64_t>(1, max_elements / row_elements);
  for (int64_t i = 0; i < count; i += step) visit(rows.narrow(0, i, std::min(step, count - i)));
}

}  // namespace moonshard::weights
