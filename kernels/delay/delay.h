// A stream that waits: stands in for communication that another machine would do. One thread of one
// block, so that it takes no room from what runs beside it.
#pragma once

namespace moonshard::kernels {

/// What is put on the stream later starts this much later.
void delay_stream(double microseconds, void* cuda_stream);

}  // namespace moonshard::kernels
