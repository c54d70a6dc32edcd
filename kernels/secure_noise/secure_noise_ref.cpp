#include <ATen/Dispatch.h>

#include "kernels/secure_noise/secure_noise.h"
#include "kernels/secure_noise/secure_noise_math.h"

namespace moonshard::kernels {

void add_secure_noise_ref(at::Tensor& target, double std, const SecureStream& stream,
                          int64_t first_element) {
  const double grid = secure_grid(std);
  AT_DISPATCH_FLOATING_TYPES(target.scalar_type(), "add_secure_noise_ref", [&] {
    scalar_t* data = target.data_ptr<scalar_t>();
    for (int64_t i = 0; i < target.numel(); ++i) {
      const ElementNormal normal = element_normal(stream, first_element + i);
      const double radius = float_at_least(std) * normal.pair.radius;
      // The product of two float32 is exact in double.
      const auto sum = static_cast<scalar_t>(static_cast<double>(data[i]) +
                                             radius * static_cast<double>(normal.factor()));
      data[i] = on_grid(sum, static_cast<scalar_t>(grid), static_cast<scalar_t>(1 / grid));
    }
  });
}

}  // namespace moonshard::kernels
