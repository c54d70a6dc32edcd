// What the sums over samples on Hopper share: which samples count, which share of them a tile sums
// over, and how one accumulator carries all samples' factors.
#pragma once

#include "kernels/clipped_sum/clipped_sum_launch.h"
#include "kernels/common/architecture.h"
#include "kernels/common/sample_gemm_sm90.cuh"

namespace moonshard::kernels {
namespace {

// Accumulators hold the sum over c[next]. They may grow by the largest factor so far over c[next],
// which leaves room for gradients up to 3e29; they may shrink as long as no significant digits
// relative to the next sample are lost.
constexpr float kMostGrowth = 1.0e9f;
constexpr float kLeastRatio = 1.0e-18f;

// The samples that count, in order. In shared memory.
struct CountedSamples {
  int count;
  int sample[kClippedSumSamples];
  float factor[kClippedSumSamples];

  /// All threads of a block together; they meet afterwards.
  __device__ void find(const float* factors, int samples) {
    if (threadIdx.x >= 32) return;
    int found = 0;
    for (int base = 0; base < samples; base += 32) {
      const int place = base + threadIdx.x;
      const float own = place < samples ? factors[place] : 0.0f;
      const bool counts = own != 0.0f;  // NaN counts: it must propagate
      const uint32_t which = __ballot_sync(0xffffffffu, counts);
      if (counts) {
        const int to = found + __popc(which & ((1u << threadIdx.x) - 1));
        sample[to] = place;
        factor[to] = own;
      }
      found += __popc(which);
    }
    if (threadIdx.x == 0) count = found;
  }
};

// A tile sums over the split's share of all tiles of positions of the samples that count.
struct SumSegments {
  __device__ __forceinline__ SumSegments(const CountedSamples& samples, int per_sample, int slice,
                                         int splits)
      : samples(samples), per_sample(per_sample) {
    const int all = samples.count * per_sample;
    const int share = all / splits, rest = all - share * splits;
    begin = slice * share + min(slice, rest);
    end = begin + share + (slice < rest ? 1 : 0);
    first = begin / per_sample;
    count = begin == end ? 0 : (end - 1) / per_sample - first + 1;
  }
  __device__ __forceinline__ sample_gemm::Segment at(int index) const {
    const int start = (first + index) * per_sample;
    const int from = max(begin - start, 0), to = min(end - start, per_sample);
    return {samples.sample[first + index], from, to - from};
  }
  __device__ __forceinline__ int k_tiles() const { return end - begin; }

  const CountedSamples& samples;
  int per_sample, begin, end, first, count;
};

// The factor that the accumulators are still to be multiplied by.
class RunningFactor {
 public:
  __device__ __forceinline__ RunningFactor(const CountedSamples& samples, int first)
      : samples_(samples), first_(first) {
    value = first < samples.count ? samples.factor[first] : 0.0f;
    largest_ = value;
  }

  /// To the sample of a later segment: the accumulators are rescaled, or where its factor is too
  /// far away stored by `put`, and true says that they begin anew.
  template <class Accumulators, class Put>
  __device__ __forceinline__ bool move(Accumulators& sum, int segment, const Put& put) {
    const float next = samples_.factor[first_ + segment];
    const float ratio = value / next;
    // Written so that NaN and a change of sign also take the slow path.
    const bool rescale = ratio >= kLeastRatio && largest_ / next <= kMostGrowth;
    if (rescale) {
      if (ratio != 1.0f) {
        CUTLASS_PRAGMA_UNROLL
        for (int v = 0; v < sample_gemm::kValues; ++v) sum(v) *= ratio;
      }
      largest_ = fmaxf(largest_, next);
    } else {
      put();
      largest_ = next;
    }
    value = next;
    return !rescale;
  }

  float value;

 private:
  const CountedSamples& samples_;
  int first_;
  float largest_;
};

// Values of a tile's thread in groups of four neighbours: neighbouring lanes exchange halves, so
// that even lanes have the first of two groups of 8 columns and odd ones the second. With it group
// m < 16 of row half h is columns tile_column() + 16 m + 0 ... 3, values 8 m + 2 h + {0, 1, 4, 5}.
template <class Accumulators>
__device__ __forceinline__ void exchange_columns(Accumulators& sum) {
  const bool odd = (threadIdx.x & 1) != 0;
  CUTLASS_PRAGMA_UNROLL
  for (int m = 0; m < sample_gemm::kValues / 8; ++m) {
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      float &low_0 = sum(8 * m + 2 * h), &low_1 = sum(8 * m + 2 * h + 1);
      float &high_0 = sum(8 * m + 4 + 2 * h), &high_1 = sum(8 * m + 4 + 2 * h + 1);
      const float got_0 = __shfl_xor_sync(0xffffffffu, odd ? low_0 : high_0, 1);
      const float got_1 = __shfl_xor_sync(0xffffffffu, odd ? low_1 : high_1, 1);
      if (odd) {
        low_0 = got_0, low_1 = got_1;
      } else {
        high_0 = got_0, high_1 = got_1;
      }
    }
  }
}

__device__ __forceinline__ int exchanged_column() {
  return 8 * (static_cast<int>(threadIdx.x) & 1) + 2 * (static_cast<int>(threadIdx.x) & 2);
}

}  // namespace
}  // namespace moonshard::kernels
