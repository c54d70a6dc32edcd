#include "kernels/secure_noise/secure_noise.h"

#include "kernels/common/host_copy.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {

void add_secure_noise(at::Tensor& target, double std, const SecureStream& stream,
                      int64_t first_element) {
  const bool is_double = target.scalar_type() == at::kDouble;
  MS_CHECK(target.is_contiguous() && (is_double || target.scalar_type() == at::kFloat) &&
               first_element >= 0 && std > 0,
           "add_secure_noise: expected contiguous float32 or float64, first_element >= 0 and std > "
           "0, got {} of strides {}, {} and {}",
           c10::toString(target.scalar_type()), c10::str(target.strides()), first_element, std);
  if (target.numel() == 0) return;
  const auto on_host = [&](at::Tensor& host) {
    add_secure_noise_cpu(host, std, stream, first_element);
  };
  if (target.is_cpu()) return on_host(target);
  if (ran_on_host_copy("secure_noise", target, on_host)) return;
  cuda().launch_secure_noise(target.data_ptr(), is_double, target.numel(), std, stream,
                             first_element, stream_of(target));
}

}  // namespace moonshard::kernels
