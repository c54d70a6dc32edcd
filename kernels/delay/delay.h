// Delays a stream: simulates communication with other machines. One thread of one block, so that
// concurrent kernels keep the GPU.
#pragma once

namespace moonshard::kernels {

/// Whether the library of CUDA kernels is there.
bool can_delay();
/// Later work on the stream starts this much later.
void delay_stream(double microseconds, void* cuda_stream);
/// Later work on the stream starts when a transfer has ended: it has the device's port for itself
/// for `port_us`, behind the transfers that came to it before, of whatever stream, and arrives
/// `latency_us` later.
void transfer_on_stream(double port_us, double latency_us, void* cuda_stream);

}  // namespace moonshard::kernels
