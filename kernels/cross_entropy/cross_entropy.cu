// A block per row. Forward keeps for each thread the largest score and the sum of exponentials
// relative to it, corrected when a larger one comes (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018), so that the row is read once.
#include <cfloat>

#include "kernels/common/architecture.h"
#include "kernels/common/packs.cuh"
#include "kernels/cross_entropy/cross_entropy_launch.h"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;

// tanh(s / cap) and the capped score; without a cap the score itself.
template <class T, bool kCapped>
struct Capped {
  float cap;

  __device__ __forceinline__ float bent(float score) const {
    const float x = score / cap;
    if constexpr (sizeof(T) == 4) return tanhf(x);
    // Near 0 the quotient below would lose what little there is; the next term is below 1e-7.
    const float size = fabsf(x), square = x * x;
    const float near =
        x * (1.0f + square * (-1.0f / 3 + square * (2.0f / 15 - square * (17.0f / 315))));
    const float shrunk = __expf(-2.0f * size);
    const float far = copysignf(__fdividef(1.0f - shrunk, 1.0f + shrunk), x);
    return size < 0.25f ? near : far;
  }
  __device__ __forceinline__ float score(float raw) const {
    if constexpr (kCapped) return cap * bent(raw);
    return raw;
  }
};

// sum of exp(s - largest) over some scores. The start is finite, so that differences are, too.
struct RunningSum {
  float largest = -FLT_MAX, sum = 0;

  __device__ __forceinline__ void join(const RunningSum& other) {
    const float top = fmaxf(largest, other.largest);
    sum = sum * __expf(largest - top) + other.sum * __expf(other.largest - top);
    largest = top;
  }
  template <class T, bool kCapped, int kPack>
  __device__ __forceinline__ void add(const Pack<T, kPack>& raw, const Capped<T, kCapped>& capped) {
    float top = largest, scores[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      scores[i] = capped.score(raw[i]);
      top = fmaxf(top, scores[i]);
    }
    sum *= __expf(largest - top);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum += __expf(scores[i] - top);
    largest = top;
  }
};

// On thread 0 alone.
__device__ __forceinline__ RunningSum block_join(RunningSum mine) {
  __shared__ float largest[kWarps], sums[kWarps];
  for (int step = 16; step > 0; step /= 2) {
    RunningSum other;
    other.largest = __shfl_xor_sync(0xffffffffu, mine.largest, step);
    other.sum = __shfl_xor_sync(0xffffffffu, mine.sum, step);
    mine.join(other);
  }
  if (threadIdx.x % 32 == 0) {
    largest[threadIdx.x / 32] = mine.largest;
    sums[threadIdx.x / 32] = mine.sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kWarps; ++warp) {
      RunningSum other;
      other.largest = largest[warp];
      other.sum = sums[warp];
      mine.join(other);
    }
  }
  return mine;
}

template <class T, bool kCapped, int kPack>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_forward_kernel(const CrossEntropy p, float* losses, float* log_sums) {
  const int64_t row = blockIdx.x, label = p.labels[row];
  const T* scores = static_cast<const T*>(p.scores) + row * p.width;
  const Capped<T, kCapped> capped{p.cap};
  RunningSum mine;
#pragma unroll 4
  for (int64_t i = threadIdx.x * kPack; i < p.width; i += kThreads * kPack)
    mine.add(Pack<T, kPack>::load(scores + i), capped);
  const RunningSum all = block_join(mine);
  if (threadIdx.x != 0) return;
  const float log_sum = all.largest + logf(all.sum);
  log_sums[row] = log_sum;
  if (label == p.ignored_label) {
    losses[row] = 0;
  } else if (label >= 0 && label < p.width) {
    losses[row] = log_sum - capped.score(static_cast<float>(scores[label]));
  } else {
    losses[row] = nanf("");
  }
}

// No __restrict__: the gradient may be the scores. A thread writes only where it alone has read.
template <class T, bool kCapped, int kPack>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_backward_kernel(const CrossEntropy p, const float* log_sums, const float* factors,
                                  T* gradient) {
  const int64_t row = blockIdx.x, label = p.labels[row];
  const T* scores = static_cast<const T*>(p.scores) + row * p.width;
  T* out = gradient + row * p.width;
  const float log_sum = log_sums[row], factor = factors[row];
  const bool ignored = label == p.ignored_label;
  const Capped<T, kCapped> capped{p.cap};
  constexpr int kAtOnce = 2;  // loads in flight together, not separated by stores
  constexpr int64_t kStride = int64_t{kThreads} * kPack;
  for (int64_t first = threadIdx.x * kPack; first < p.width; first += kAtOnce * kStride) {
    Pack<T, kPack> held[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = first + j * kStride;
      if (i < p.width && !ignored) held[j] = Pack<T, kPack>::load(scores + i);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = first + j * kStride;
      if (i >= p.width) continue;
      Pack<T, kPack> result;
#pragma unroll
      for (int lane = 0; lane < kPack; ++lane) {
        float score = ignored ? 0.0f : held[j][lane], slope = factor;
        if constexpr (kCapped) {
          const float bent = capped.bent(score);
          score = p.cap * bent;
          slope *= 1.0f - bent * bent;
        }
        const float chance = ignored ? 0.0f : __expf(score - log_sum);
        result.set(lane, ignored ? 0.0f : slope * (i + lane == label ? chance - 1.0f : chance));
      }
      result.store(out + i);
    }
  }
}

bool is_wide(const CrossEntropy& p, const void* gradient) {
  return p.width % 8 == 0 && is_aligned_16(p.scores) && is_aligned_16(gradient);
}

template <class T, bool kCapped, int kPack>
void forward(const CrossEntropy& p, float* losses, float* log_sums, cudaStream_t stream) {
  cross_entropy_forward_kernel<T, kCapped, kPack>
      <<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p, losses, log_sums);
}

template <class T, bool kCapped, int kPack>
void backward(const CrossEntropy& p, const float* log_sums, const float* factors, void* gradient,
              cudaStream_t stream) {
  cross_entropy_backward_kernel<T, kCapped, kPack>
      <<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p, log_sums, factors,
                                                               static_cast<T*>(gradient));
}

// Calls run<T, kCapped>() for the format and the cap.
template <class Run>
void with_types(const CrossEntropy& p, const Run& run) {
  if (p.format == NumberFormat::Float32) {
    p.cap > 0 ? run.template operator()<float, true>() : run.template operator()<float, false>();
  } else {
    p.cap > 0 ? run.template operator()<__nv_bfloat16, true>()
              : run.template operator()<__nv_bfloat16, false>();
  }
}

}  // namespace

void launch_cross_entropy_forward(const CrossEntropy& p, float* losses, float* log_sums,
                                  void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const bool wide = is_wide(p, nullptr);
  with_types(p, [&]<class T, bool kCapped>() {
    (wide ? forward<T, kCapped, 8> : forward<T, kCapped, 1>)(p, losses, log_sums, on);
  });
  check_launch("cross_entropy_forward");
}

void launch_cross_entropy_backward(const CrossEntropy& p, const float* log_sums,
                                   const float* factors, void* gradient, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const bool wide = is_wide(p, gradient);
  with_types(p, [&]<class T, bool kCapped>() {
    (wide ? backward<T, kCapped, 8> : backward<T, kCapped, 1>)(p, log_sums, factors, gradient, on);
  });
  check_launch("cross_entropy_backward");
}

}  // namespace moonshard::kernels
