// Raw launcher of delay: a kernel of one thread that sleeps.
#pragma once

namespace moonshard::kernels {

void launch_delay(double microseconds, void* cuda_stream);

}  // namespace moonshard::kernels
