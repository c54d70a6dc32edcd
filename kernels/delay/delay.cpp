#include "kernels/delay/delay.h"

#include "kernels/common/cuda_library.h"

namespace moonshard::kernels {

bool can_delay() {
  return cuda_library_absence().empty();
}

void delay_stream(double microseconds, void* cuda_stream) {
  cuda().launch_delay(microseconds, cuda_stream);
}

void transfer_on_stream(double port_us, double latency_us, void* cuda_stream) {
  cuda().launch_transfer(port_us, latency_us, cuda_stream);
}

void repeat_on_stream(void* rows, const void* row, int64_t bytes, int64_t count, int64_t except,
                      void* cuda_stream) {
  cuda().launch_repeat(rows, row, bytes, count, except, cuda_stream);
}

}  // namespace moonshard::kernels
