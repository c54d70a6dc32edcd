// Simulates communication with other machines: delays a stream, by one thread of one block, so that
// concurrent kernels keep the GPU; and writes what a collective would bring.
#pragma once

#include <cstdint>

namespace moonshard::kernels {

/// Whether the library of CUDA kernels is there.
bool can_delay();
/// Later work on the stream starts this much later.
void delay_stream(double microseconds, void* cuda_stream);
/// Later work on the stream starts when a transfer has ended: it has the device's port for itself
/// for `port_us`, behind the transfers that came to it before, of whatever stream, and arrives
/// `latency_us` later.
void transfer_on_stream(double port_us, double latency_us, void* cuda_stream);
/// `row` of so many bytes, a multiple of 16 as are the addresses, into `count` rows but number
/// `except` (-1: into all). By about as many multiprocessors as a real collective takes.
void repeat_on_stream(void* rows, const void* row, int64_t bytes, int64_t count, int64_t except,
                      void* cuda_stream);

}  // namespace moonshard::kernels
