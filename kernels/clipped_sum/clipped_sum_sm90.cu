// sum over b of c[b] g_b^T a_b: one product whose sum runs over samples and positions, with the
// factors applied to the float32 accumulators, where they cost no precision. Between two samples
// the accumulators are multiplied by c[before] / c[next], at the end by the last factor: one
// accumulator instead of two, so that the tile can be the large one. Samples with c = 0 are never
// read.
//
// The ratio can leave the range of float32 when factors differ by many orders of magnitude. Then
// the accumulators are added to the result instead, and the sum begins anew.
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/clipped_sum/clipped_sum_launch.h"
#include "kernels/common/architecture.h"
#include "kernels/common/sample_gemm_sm90.cuh"

namespace moonshard::kernels {
namespace {

using sample_gemm::Work;

// Accumulators hold the sum over c[next]. They may grow by the largest factor so far over c[next],
// which leaves room for gradients up to 3e29; they may shrink as long as no significant digits
// relative to the next sample are lost.
constexpr float kMostGrowth = 1.0e9f;
constexpr float kLeastRatio = 1.0e-18f;

template <class Shape_>
class ClippedSum {
 public:
  using Shape = Shape_;
  static constexpr int kValues = Shape::kValues;

  struct Problem : sample_gemm::TiledProblem<Shape> {
    float* out;
    int64_t out_row, out_split;  // elements from row to row and from split to split
  };
  struct Params {
    Problem problem[sample_gemm::kMostProblems];
    int num_problems, num_tiles;
    const float* factors;
    int samples, splits;
    bool add;  // to what `out` holds
  };
  // The samples that count, in order.
  struct Shared {
    int count;
    int sample[kClippedSumSamples];
    float factor[kClippedSumSamples];
  };

  // A tile sums over the split's share of all tiles of positions of the samples that count.
  struct Segments {
    __device__ __forceinline__ Segments(const Params& params, const Shared& shared,
                                        const Work& work)
        : shared(shared), per_sample(params.problem[work.problem].k_tiles) {
      const int all = shared.count * per_sample;
      const int share = all / params.splits, rest = all - share * params.splits;
      begin = work.slice * share + min(work.slice, rest);
      end = begin + share + (work.slice < rest ? 1 : 0);
      first = begin / per_sample;
      count = begin == end ? 0 : (end - 1) / per_sample - first + 1;
    }
    __device__ __forceinline__ sample_gemm::Segment at(int index) const {
      const int start = (first + index) * per_sample;
      const int from = max(begin - start, 0), to = min(end - start, per_sample);
      return {shared.sample[first + index], from, to - from};
    }
    __device__ __forceinline__ int k_tiles() const { return end - begin; }

    const Shared& shared;
    int per_sample, begin, end, first, count;
  };

  __device__ static void prepare(const Params& params, Shared& shared) {
    if (threadIdx.x >= 32) return;
    int count = 0;
    for (int base = 0; base < params.samples; base += 32) {
      const int sample = base + threadIdx.x;
      const float factor = sample < params.samples ? params.factors[sample] : 0.0f;
      const bool counts = factor != 0.0f;  // NaN counts: it must propagate
      const uint32_t which = __ballot_sync(0xffffffffu, counts);
      if (counts) {
        const int place = count + __popc(which & ((1u << threadIdx.x) - 1));
        shared.sample[place] = sample;
        shared.factor[place] = factor;
      }
      count += __popc(which);
    }
    if (threadIdx.x == 0) shared.count = count;
  }

  __device__ __forceinline__ ClippedSum(const Params& params, const Shared& shared,
                                        const Work& work)
      : params_(params), shared_(shared), work_(work) {
    first_ = Segments(params, shared, work).first;
    factor_ = first_ < shared.count ? shared.factor[first_] : 0.0f;
    largest_ = factor_;
    add_ = params.add;
  }

  template <class Accumulators>
  __device__ __forceinline__ bool enter(Accumulators& sum, int segment) {
    const float next = shared_.factor[first_ + segment];
    const float ratio = factor_ / next;
    // Written so that NaN and a change of sign also take the slow path.
    const bool rescale = ratio >= kLeastRatio && largest_ / next <= kMostGrowth;
    if (rescale) {
      if (ratio != 1.0f) {
        CUTLASS_PRAGMA_UNROLL
        for (int v = 0; v < kValues; ++v) sum(v) *= ratio;
      }
      largest_ = fmaxf(largest_, next);
    } else {
      put(sum);
      largest_ = next;
    }
    factor_ = next;
    return !rescale;
  }

  template <class Accumulators>
  __device__ __forceinline__ void finish(Accumulators& sum, int segments) {
    if (segments == 0) {
      if (add_) return;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kValues; ++v) sum(v) = 0.0f;
      factor_ = 0.0f;
    }
    put(sum);
  }

 private:
  // factor * sum into the result; what is put later is added to it.
  template <class Accumulators>
  __device__ __forceinline__ void put(const Accumulators& sum) {
    if (add_)
      store<true>(sum);
    else
      store<false>(sum);
    add_ = true;
  }

  template <bool kAdd, class Accumulators>
  __device__ __forceinline__ void store(const Accumulators& sum) const {
    const Problem& p = params_.problem[work_.problem];
    const bool odd = (threadIdx.x & 1) != 0;
    const int row = work_.row + sample_gemm::thread_row<Shape>();
    // After the exchange below: even lanes hold 4 columns of the first of two groups of 8, odd
    // lanes the same columns of the second.
    const int column = work_.column + 8 * (threadIdx.x & 1) + 2 * (threadIdx.x & 2);
    float* const out = p.out + work_.slice * p.out_split + column;
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      float* const line = out + (row + 8 * h) * p.out_row;
      const bool inside = row + 8 * h < p.o;
      constexpr int kAtOnce = 4;  // loads in flight
      CUTLASS_PRAGMA_UNROLL
      for (int first = 0; first < kValues / 4; first += 2 * kAtOnce) {
        float4 before[kAtOnce];
        CUTLASS_PRAGMA_UNROLL
        for (int n = 0; n < kAtOnce; ++n) {
          const int group = first + 2 * n;
          before[n] = make_float4(0, 0, 0, 0);
          if (kAdd && inside && column + 8 * group < p.i)
            before[n] = *reinterpret_cast<const float4*>(line + 8 * group);
        }
        CUTLASS_PRAGMA_UNROLL
        for (int n = 0; n < kAtOnce; ++n) {
          const int group = first + 2 * n;
          const float low[2] = {sum(4 * group + 2 * h) * factor_,
                                sum(4 * group + 2 * h + 1) * factor_};
          const float high[2] = {sum(4 * group + 4 + 2 * h) * factor_,
                                 sum(4 * group + 4 + 2 * h + 1) * factor_};
          const float got_0 = __shfl_xor_sync(0xffffffffu, odd ? low[0] : high[0], 1);
          const float got_1 = __shfl_xor_sync(0xffffffffu, odd ? low[1] : high[1], 1);
          const float4 value = odd ? make_float4(got_0, got_1, high[0], high[1])
                                   : make_float4(low[0], low[1], got_0, got_1);
          if (inside && column + 8 * group < p.i)
            __stcs(reinterpret_cast<float4*>(line + 8 * group),
                   make_float4(before[n].x + value.x, before[n].y + value.y, before[n].z + value.z,
                               before[n].w + value.w));
        }
      }
    }
  }

  const Params& params_;
  const Shared& shared_;
  const Work work_;
  int first_;
  float factor_, largest_;
  bool add_;
};

// out (+)= the splits' parts, in their order.
__global__ void clipped_sum_add_kernel(const float* parts, int64_t split_elements, int splits,
                                       float* out, int64_t out_row, int width, bool accumulate) {
  const int64_t quads = split_elements / 4;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int quads_per_row = width / 4;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < quads;
       at += stride) {
    const int64_t row = at / quads_per_row;
    float4* const target =
        reinterpret_cast<float4*>(out + row * out_row) + (at - row * quads_per_row);
    float4 sum = accumulate ? *target : make_float4(0, 0, 0, 0);
    for (int split = 0; split < splits; ++split) {
      const float4 part =
          __ldcs(reinterpret_cast<const float4*>(parts + split * split_elements) + at);
      sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }
    *target = sum;
  }
}

template <GemmSchedule kSchedule>
void launch_some(const ClippedSumProblem* problems, int count, const float* factors,
                 bool accumulate, int splits, float* scratch, cudaStream_t stream) {
  using Shape = sample_gemm::Shape<kSchedule>;
  using Operation = ClippedSum<Shape>;
  // Longest tiles first, so that short ones fill the end.
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
    return problems[x].in.positions > problems[y].in.positions;
  });
  typename Operation::Params params{};
  params.num_problems = count;
  params.factors = factors;
  params.samples = static_cast<int>(problems[0].in.samples);
  params.splits = splits;
  params.add = accumulate && splits == 1;
  std::vector<float*> parts(count);
  for (int n = 0; n < count; ++n) {
    const ClippedSumProblem& from = problems[order[n]];
    auto& to = params.problem[n];
    params.num_tiles = sample_gemm::describe_problem<Shape>(to, from.in, splits, params.num_tiles);
    to.out = from.out;
    to.out_row = from.out_row;
    to.out_split = 0;
    if (splits > 1) {
      parts[n] = to.out = scratch;
      to.out_row = from.in.i;
      to.out_split = from.in.o * from.in.i;
      scratch += splits * to.out_split;
    }
  }
  sample_gemm::launch<Operation>(params, stream);
  check_launch("clipped_sum");
  if (splits == 1) return;
  for (int n = 0; n < count; ++n) {
    const ClippedSumProblem& from = problems[order[n]];
    const int64_t elements = from.in.o * from.in.i;
    const int64_t blocks = std::min<int64_t>((elements / 4 + 255) / 256, 2048);
    clipped_sum_add_kernel<<<static_cast<unsigned>(blocks), 256, 0, stream>>>(
        parts[n], elements, splits, from.out, from.out_row, static_cast<int>(from.in.i),
        accumulate);
    check_launch("clipped_sum");
  }
}

// With the number of splits that takes the least time, and that time.
template <GemmSchedule kSchedule>
std::pair<double, ClippedSumPlan> plan(const ClippedSumProblem* problems, int count,
                                       ClippedSumPlan wish) {
  using Shape = sample_gemm::Shape<kSchedule>;
  const int64_t clusters = sample_gemm::resident_clusters<ClippedSum<Shape>>();
  wish.schedule = kSchedule;
  int64_t tiles = 0, elements = 0, k_tiles = 0;
  for (int n = 0; n < count; ++n) {
    const SampleOperands& in = problems[n].in;
    tiles += sample_gemm::count_tiles<Shape>(in);
    elements += in.o * in.i;
    k_tiles = std::max(k_tiles, in.samples * ((in.positions + Shape::kTileT - 1) / Shape::kTileT));
  }
  // A tile's product over 64 positions; what a tile costs beside its products, a launch, and 3 TB/s
  // for writing and reading the parts.
  const double product_s = Shape::kPingPong ? 0.3e-6 : Shape::kNarrow ? 0.47e-6 : 0.6e-6;
  const double tile_s = 4 * product_s, launch_s = 4e-6 * count;
  const auto seconds = [&](int splits) {
    const auto rounds = static_cast<double>((tiles * splits + clusters - 1) / clusters);
    const double sums = rounds * (static_cast<double>(k_tiles) / splits * product_s + tile_s);
    return splits == 1 ? sums
                       : sums + launch_s + static_cast<double>(elements) * 8.0 * splits / 3e12;
  };
  if (wish.splits <= 0) {
    wish.splits = 1;
    for (int splits = 2; splits <= 16 && k_tiles / splits >= 8; ++splits)
      if (seconds(splits) < seconds(wish.splits)) wish.splits = splits;
  }
  wish.scratch = wish.splits > 1 ? wish.splits * elements : 0;
  return {seconds(wish.splits), wish};
}

}  // namespace

ClippedSumPlan plan_clipped_sum(const ClippedSumProblem* problems, int count, ClippedSumPlan wish) {
  if (wish.schedule == GemmSchedule::PingPong)
    return plan<GemmSchedule::PingPong>(problems, count, wish).second;
  const auto wide = plan<GemmSchedule::Cooperative>(problems, count, wish);
  const auto narrow = plan<GemmSchedule::Narrow>(problems, count, wish);
  if (wish.schedule == GemmSchedule::Chosen)
    return wide.first <= narrow.first ? wide.second : narrow.second;
  return wish.schedule == GemmSchedule::Narrow ? narrow.second : wide.second;
}

void launch_clipped_sum(const ClippedSumProblem* problems, int count, const float* factors,
                        bool accumulate, const ClippedSumPlan& plan, float* scratch,
                        void* cuda_stream) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  for (int first = 0; first < count; first += sample_gemm::kMostProblems) {
    const int some = std::min(count - first, sample_gemm::kMostProblems);
    const auto launch =
        plan.schedule == GemmSchedule::PingPong ? launch_some<GemmSchedule::PingPong>
        : plan.schedule == GemmSchedule::Narrow ? launch_some<GemmSchedule::Narrow>
                                                : launch_some<GemmSchedule::Cooperative>;
    launch(problems + first, some, factors, accumulate, plan.splits, scratch, stream);
    if (plan.splits > 1) {
      for (int n = first; n < first + some; ++n)
        scratch += plan.splits * problems[n].in.o * problems[n].in.i;
    }
  }
}

}  // namespace moonshard::kernels
