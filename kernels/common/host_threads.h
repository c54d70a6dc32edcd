// Work of the CPU's own kernels on LibTorch's threads.
#pragma once

#include <cstdint>
#include <functional>

// Code that the processor's vector instructions are worth: on x86-64, which every program is
// compiled for in its oldest form, a second version with AVX2 is chosen at start. AVX2 alone has no
// fused multiply-add: both versions round alike. (A sanitizer's start-up is not ready for the
// choice.)
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MS_HOST_VECTORS __attribute__((target_clones("avx2", "default"), flatten))
#else
#define MS_HOST_VECTORS __attribute__((flatten))
#endif

namespace moonshard::kernels {

/// Calls work(0) … work(pieces - 1), on as many threads as LibTorch uses (at::get_num_threads); a
/// thread that is done takes the next piece. Returns when all are done, and throws what a piece has
/// thrown. Inside of such work it runs on the calling thread.
void share_pieces(int64_t pieces, const std::function<void(int64_t piece)>& work);

}  // namespace moonshard::kernels
