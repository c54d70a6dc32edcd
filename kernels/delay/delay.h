// Delays a stream: simulates communication with other machines. One thread of one block, so that
// concurrent kernels keep the GPU.
#pragma once

namespace moonshard::kernels {

/// Whether the library of CUDA kernels is there.
bool can_delay();
/// Later work on the stream starts this much later.
void delay_stream(double microseconds, void* cuda_stream);

}  // namespace moonshard::kernels
