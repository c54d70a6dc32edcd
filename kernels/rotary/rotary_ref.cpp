#include <ATen/ATen.h>

#include "kernels/rotary/rotary.h"

namespace moonshard::kernels {
namespace {

void rotate(at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines, bool inverse) {
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t half = cosines.size(-1);
  const at::Tensor heads = x.view({x.size(0), x.size(1), -1, 2 * half});
  const at::Tensor first = heads.narrow(-1, 0, half).to(wide),
                   second = heads.narrow(-1, half, half).to(wide);
  const at::Tensor cosine = cosines.to(wide).unsqueeze(1);
  const at::Tensor sine = (inverse ? sines.neg() : sines).to(wide).unsqueeze(1);
  // Both before either is written: in a wide dtype `first` and `second` alias x.
  const at::Tensor turned_first = first * cosine - second * sine;
  const at::Tensor turned_second = second * cosine + first * sine;
  heads.narrow(-1, 0, half).copy_(turned_first);
  heads.narrow(-1, half, half).copy_(turned_second);
}

}  // namespace

void rotate_in_place_ref(at::Tensor& q, at::Tensor& k, const at::Tensor& cosines,
                         const at::Tensor& sines, bool inverse) {
  rotate(q, cosines, sines, inverse);
  rotate(k, cosines, sines, inverse);
}

}  // namespace moonshard::kernels
