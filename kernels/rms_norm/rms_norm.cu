// Forward: a block per row. Backward: a block per chunk of a sample's tokens, row after row, so
// that the sums of the weight's gradient stay in registers; a second, small launch adds the chunks.
// Each row is read once, 16 bytes at a time, and held in registers between its statistics and its
// results. What bounds both is memory: 4 numbers moved per element (x, delta, y, n; y, dn, dy, dx).
#include "kernels/common/architecture.h"
#include "kernels/common/chunk_sums.cuh"
#include "kernels/common/packs.cuh"
#include "kernels/rms_norm/rms_norm_launch.h"

namespace moonshard::kernels {
namespace {

// With 128 registers for each thread the backward kernel holds its row and its sums without spills.
constexpr int kMostThreads = 512;

template <class T, class W, int kPack, int kPacks>
__global__ void __launch_bounds__(kMostThreads) rms_norm_forward_kernel(const RmsNormForward p) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * p.width;
  const T* x = static_cast<const T*>(p.x) + row;
  const T* delta = p.delta != nullptr ? static_cast<const T*>(p.delta) + row : nullptr;
  const W* weight = static_cast<const W*>(p.weight);
  T* n = static_cast<T*>(p.n) + row;
  const auto place = [](int j) {
    return (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kPack;
  };

  // All loads before the first store: they are then under way together.
  Pack<T, kPack> held[kPacks], added[kPacks];
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (place(j) < p.width) held[j] = Pack<T, kPack>::load(x + place(j));
  }
  if (delta != nullptr) {
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (place(j) < p.width) added[j] = Pack<T, kPack>::load(delta + place(j));
    }
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (place(j) >= p.width) continue;
#pragma unroll
      for (int i = 0; i < kPack; ++i) held[j].set(i, held[j][i] + added[j][i]);
      held[j].store(static_cast<T*>(p.y) + row + place(j));
    }
  }
  float squares = 0;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (place(j) >= p.width) continue;
#pragma unroll
    for (int i = 0; i < kPack; ++i) squares += held[j][i] * held[j][i];
  }
  const float inverse = rsqrtf(block_sum(squares) / static_cast<float>(p.width) + p.eps);
  if (threadIdx.x == 0) p.inverse_spread[blockIdx.x] = inverse;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (place(j) >= p.width) continue;
    const auto scale = Pack<W, kPack>::load(weight + place(j));
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      held[j].set(i, rounded_to<T>(held[j][i] * inverse) * rounded_to<T>(scale[i]));
    held[j].store(n + place(j));
  }
}

template <class T, class W, int kPack, int kPacks>
__global__ void __launch_bounds__(kMostThreads) rms_norm_backward_kernel(const RmsNormBackward p) {
  const int64_t sample = blockIdx.x / p.chunks;
  const int chunk = static_cast<int>(blockIdx.x % p.chunks);
  const int64_t first = p.tokens * chunk / p.chunks, end = p.tokens * (chunk + 1) / p.chunks;
  const W* weight = static_cast<const W*>(p.weight);
  const auto place = [](int j) {
    return (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kPack;
  };

  float sums[kPacks * kPack] = {};
  for (int64_t t = first; t < end; ++t) {
    const int64_t row = sample * p.tokens + t, begin = row * p.width;
    const float inverse = p.inverse_spread[row];
    Pack<T, kPack> y[kPacks], dn[kPacks], dy[kPacks];
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (place(j) >= p.width) continue;
      y[j] = Pack<T, kPack>::load(static_cast<const T*>(p.y) + begin + place(j));
      dn[j] = Pack<T, kPack>::load(static_cast<const T*>(p.dn) + begin + place(j));
      if (p.dy != nullptr)
        dy[j] = Pack<T, kPack>::load(static_cast<const T*>(p.dy) + begin + place(j));
    }
    float along = 0;  // the part of the gradient along the row, which scaling takes out
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (place(j) >= p.width) continue;
      const auto scale = Pack<W, kPack>::load(weight + place(j));
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        along += dn[j][i] * rounded_to<T>(scale[i]) * (y[j][i] * inverse);
    }
    along = block_sum(along, static_cast<int>(t & 1)) / static_cast<float>(p.width);
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      if (place(j) >= p.width) continue;
      const auto scale = Pack<W, kPack>::load(weight + place(j));
      Pack<T, kPack> dx, normalised;
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const float direction = y[j][i] * inverse;
        normalised.set(i, direction);
        sums[j * kPack + i] += dn[j][i] * normalised[i];
        float value = inverse * (dn[j][i] * rounded_to<T>(scale[i]) - direction * along);
        if (p.dy != nullptr) value += dy[j][i];
        dx.set(i, value);
      }
      if (p.dx != nullptr) dx.store(static_cast<T*>(p.dx) + begin + place(j));
      if (p.normalised != nullptr)
        normalised.store(static_cast<T*>(p.normalised) + begin + place(j));
    }
  }
  if (p.weight_rows == nullptr) return;
  float* out = p.chunks == 1 ? p.weight_rows + sample * p.width
                             : p.chunk_rows + static_cast<int64_t>(blockIdx.x) * p.width;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    if (place(j) >= p.width) continue;
#pragma unroll
    for (int i = 0; i < kPack; ++i) out[place(j) + i] = sums[j * kPack + i];
  }
}

int threads_for(int width, int numbers_per_thread) {
  const int threads = (width + numbers_per_thread - 1) / numbers_per_thread;
  return (threads + 31) / 32 * 32;
}

template <class T, class W, int kPack, int kPacks>
void launch(const RmsNormForward& p, cudaStream_t stream) {
  rms_norm_forward_kernel<T, W, kPack, kPacks>
      <<<static_cast<unsigned>(p.rows), threads_for(p.width, kPack * kPacks), 0, stream>>>(p);
}

template <class T, class W, int kPack, int kPacks>
void launch(const RmsNormBackward& p, cudaStream_t stream) {
  rms_norm_backward_kernel<T, W, kPack, kPacks>
      <<<static_cast<unsigned>(p.samples * p.chunks), threads_for(p.width, kPack * kPacks), 0,
         stream>>>(p);
}

template <class T, class W, class Pass>
void launch_by_width(const Pass& p, bool wide, cudaStream_t stream) {
  if (wide) {
    p.width <= 8 * kMostThreads ? launch<T, W, 8, 1>(p, stream) : launch<T, W, 8, 2>(p, stream);
  } else {
    p.width <= 4 * kMostThreads ? launch<T, W, 1, 4>(p, stream) : launch<T, W, 1, 16>(p, stream);
  }
}

template <class Pass>
void launch_by_format(const Pass& p, bool wide, cudaStream_t stream) {
  with_formats(p, [&](auto rows, auto weight) {
    launch_by_width<typename decltype(rows)::type, typename decltype(weight)::type>(p, wide,
                                                                                    stream);
  });
}

}  // namespace

void launch_rms_norm_forward(const RmsNormForward& p, void* stream) {
  const bool wide = p.width % 8 == 0 && is_aligned_16(p.x) && is_aligned_16(p.delta) &&
                    is_aligned_16(p.weight) && is_aligned_16(p.y) && is_aligned_16(p.n);
  launch_by_format(p, wide, static_cast<cudaStream_t>(stream));
  check_launch("rms_norm_forward");
}

void launch_rms_norm_backward(const RmsNormBackward& p, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const bool wide = p.width % 8 == 0 && is_aligned_16(p.dn) && is_aligned_16(p.dy) &&
                    is_aligned_16(p.y) && is_aligned_16(p.weight) && is_aligned_16(p.dx) &&
                    is_aligned_16(p.normalised);
  launch_by_format(p, wide, on);
  check_launch("rms_norm_backward");
  if (p.weight_rows == nullptr || p.chunks == 1) return;
  launch_chunk_sums(p.chunk_rows, p.weight_rows, p.samples, p.chunks, p.width, on);
  check_launch("rms_norm_backward: sums of chunks");
}

}  // namespace moonshard::kernels
