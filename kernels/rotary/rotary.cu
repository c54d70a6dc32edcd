// A block per token: its row of the tables serves all heads of q and k, from the first-level cache.
// A thread turns a pack of the first half of a head together with its partner in the second half,
// so that every number is read and written once, by one thread, in place.
#include "kernels/common/architecture.h"
#include "kernels/common/elementwise_launch.h"
#include "kernels/common/packs.cuh"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 128;

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) rotary_kernel(const Rotary p) {
  const int64_t row = blockIdx.x;
  const float* cosines = p.cosines + row % p.tokens * p.half;
  const float* sines = p.sines + row % p.tokens * p.half;
  const int packs = p.half / kPack, items = (p.q_heads + p.k_heads) * packs;
  const float sign = p.inverse ? -1.0f : 1.0f;
  T* q = static_cast<T*>(p.q) + row * p.q_heads * 2 * p.half;
  T* k = static_cast<T*>(p.k) + row * p.k_heads * 2 * p.half;
#pragma unroll 2
  for (int item = threadIdx.x; item < items; item += kThreads) {
    const int head = item / packs, i = (item - head * packs) * kPack;
    T* first = (head < p.q_heads ? q + head * 2 * p.half : k + (head - p.q_heads) * 2 * p.half) + i;
    T* second = first + p.half;
    const auto a = Pack<T, kPack>::load(first), b = Pack<T, kPack>::load(second);
    const auto cosine = Pack<float, kPack>::load(cosines + i);
    const auto sine = Pack<float, kPack>::load(sines + i);
    Pack<T, kPack> turned_a, turned_b;
#pragma unroll
    for (int lane = 0; lane < kPack; ++lane) {
      const float s = sign * sine[lane];
      turned_a.set(lane, a[lane] * cosine[lane] - b[lane] * s);
      turned_b.set(lane, b[lane] * cosine[lane] + a[lane] * s);
    }
    turned_a.store(first);
    turned_b.store(second);
  }
}

template <class T, int kPack>
void launch(const Rotary& p, cudaStream_t stream) {
  rotary_kernel<T, kPack><<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p);
}

}  // namespace

void launch_rotary(const Rotary& p, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const bool wide = p.half % 8 == 0 && is_aligned_16(p.q) && is_aligned_16(p.k) &&
                    is_aligned_16(p.cosines) && is_aligned_16(p.sines);
  if (p.format == NumberFormat::Float32) {
    (wide ? launch<float, 8> : launch<float, 1>)(p, on);
  } else {
    (wide ? launch<__nv_bfloat16, 8> : launch<__nv_bfloat16, 1>)(p, on);
  }
  check_launch("rotary");
}

}  // namespace moonshard::kernels
