#include "kernels/counter_noise/counter_noise.h"

#include "kernels/common/choice.h"
#include "kernels/common/host_copy.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

int format_code(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return 0;
    case at::kDouble:
      return 1;
    case at::kBFloat16:
      return 2;
    case at::kHalf:
      return 3;
    default:
      return -1;
  }
}

}  // namespace

void add_counter_noise(at::Tensor& target, double std, const NoiseStream& stream,
                       int64_t first_element) {
  MS_CHECK(
      target.is_contiguous() && format_code(target.scalar_type()) >= 0 && first_element >= 0,
      "add_counter_noise: expected a contiguous float tensor and first_element >= 0, got {} of "
      "strides {} and {}",
      c10::toString(target.scalar_type()), c10::str(target.strides()), first_element);
  if (target.numel() == 0) return;
  if (target.is_cpu()) return add_counter_noise_cpu(target, std, stream, first_element);
  const auto on_host = [&](at::Tensor& copy) {
    add_counter_noise_cpu(copy, std, stream, first_element);
  };
  if (ran_on_host_copy("counter_noise", target, on_host)) return;
  cuda().launch_counter_noise(target.data_ptr(), format_code(target.scalar_type()), target.numel(),
                              std, stream, first_element, stream_of(target));
}

}  // namespace moonshard::kernels
