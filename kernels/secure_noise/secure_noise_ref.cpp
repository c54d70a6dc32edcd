#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "kernels/secure_noise/secure_noise.h"
#include "kernels/secure_noise/secure_noise_math.h"

namespace moonshard::kernels {

void add_secure_noise_ref(at::Tensor& target, double std, const SecureStream& stream,
                          int64_t first_element) {
  const double grid = secure_grid(std), inverse_grid = 1 / grid;
  AT_DISPATCH_FLOATING_TYPES(target.scalar_type(), "add_secure_noise_ref", [&] {
    scalar_t* data = target.data_ptr<scalar_t>();
    at::parallel_for(0, target.numel(), 4096, [&](int64_t begin, int64_t end) {
      uint64_t block = ~uint64_t{0};
      TwoNormals normals{};
      for (int64_t i = begin; i < end; ++i) {
        const auto element = static_cast<uint64_t>(first_element + i);
        if (element / 2 != block) {
          block = element / 2;
          normals = two_secure_normals(stream, block);
        }
        const double sum = static_cast<double>(data[i]) + std * normals.value[element % 2];
        data[i] = static_cast<scalar_t>(on_grid(sum, grid, inverse_grid));
      }
    });
  });
}

}  // namespace moonshard::kernels
