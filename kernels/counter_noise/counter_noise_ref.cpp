#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "kernels/counter_noise/counter_noise.h"
#include "kernels/counter_noise/counter_noise_math.h"

namespace moonshard::kernels {

void add_counter_noise_ref(at::Tensor& target, double std, const NoiseStream& stream,
                           int64_t first_element) {
  const int64_t count = target.numel();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, target.scalar_type(), "add_counter_noise_ref", [&] {
        scalar_t* data = target.data_ptr<scalar_t>();
        at::parallel_for(0, count, 16384, [&](int64_t begin, int64_t end) {
          uint64_t block = ~uint64_t{0};
          FourNormals normals{};
          for (int64_t i = begin; i < end; ++i) {
            const uint64_t element = static_cast<uint64_t>(first_element + i);
            if (element / 4 != block) {
              block = element / 4;
              normals = four_normals(block, stream.step, stream.parameter, stream.key);
            }
            // Summed in double: the only rounding is the target's.
            data[i] = static_cast<scalar_t>(static_cast<double>(data[i]) +
                                            std * static_cast<double>(normals.value[element % 4]));
          }
        });
      });
}

}  // namespace moonshard::kernels
