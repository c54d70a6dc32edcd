// sum over b of c[b] g_b^T a_b: one product whose sum runs over samples and positions, with the
// factors applied to the float32 accumulators, where they cost no precision. Between two samples
// the accumulators are multiplied by c[before] / c[next], at the end by the last factor: one
// accumulator instead of two, so that the tile can be the large one. Samples with c = 0 are never
// read.
//
// The ratio can leave the range of float32 when factors differ by many orders of magnitude. Then
// the accumulators are added to the result instead, and the sum begins anew.
#include <numeric>
#include <vector>

#include "kernels/clipped_sum/clipped_sum_sm90.cuh"

namespace moonshard::kernels {
namespace {

using sample_gemm::kValues;
using sample_gemm::Work;

template <class Shape_>
class ClippedSum {
 public:
  using Shape = Shape_;

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
  using Shared = CountedSamples;

  struct Segments : SumSegments {
    __device__ __forceinline__ Segments(const Params& params, const Shared& shared,
                                        const Work& work)
        : SumSegments(shared, params.problem[work.problem].k_tiles, work.slice, params.splits) {}
  };

  __device__ static void prepare(const Params& params, Shared& shared) {
    shared.find(params.factors, params.samples);
  }

  __device__ __forceinline__ ClippedSum(const Params& params, const Shared& shared,
                                        const Work& work)
      : params_(params),
        work_(work),
        factor_(shared, Segments(params, shared, work).first),
        add_(params.add) {}

  template <class Accumulators>
  __device__ __forceinline__ bool enter(Accumulators& sum, int segment) {
    return factor_.move(sum, segment, [&] { put(sum); });
  }

  template <class Accumulators>
  __device__ __forceinline__ void finish(Accumulators& sum, int segments) {
    if (segments == 0) {
      if (add_) return;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kValues; ++v) sum(v) = 0.0f;
      factor_.value = 0.0f;
    }
    put(sum);
  }

 private:
  // factor * sum into the result; what is put later is added to it.
  template <class Accumulators>
  __device__ __forceinline__ void put(Accumulators& sum) {
    exchange_columns(sum);
    if (add_)
      store<true>(sum);
    else
      store<false>(sum);
    add_ = true;
  }

  template <bool kAdd, class Accumulators>
  __device__ __forceinline__ void store(const Accumulators& sum) const {
    const Problem& p = params_.problem[work_.problem];
    const int row = work_.row + sample_gemm::thread_row<Shape>();
    const int column = work_.column + exchanged_column();
    float* const out = p.out + work_.slice * p.out_split + column;
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      float* const line = out + (row + 8 * h) * p.out_row;
      const bool inside = row + 8 * h < p.o;
      constexpr int kAtOnce = 4;  // loads in flight
      CUTLASS_PRAGMA_UNROLL
      for (int first = 0; first < kValues / 8; first += kAtOnce) {
        float4 before[kAtOnce];
        CUTLASS_PRAGMA_UNROLL
        for (int n = 0; n < kAtOnce; ++n) {
          before[n] = make_float4(0, 0, 0, 0);
          if (kAdd && inside && column + 16 * (first + n) < p.i)
            before[n] = *reinterpret_cast<const float4*>(line + 16 * (first + n));
        }
        CUTLASS_PRAGMA_UNROLL
        for (int n = 0; n < kAtOnce; ++n) {
          const int v = 8 * (first + n) + 2 * h;
          const float4 value = make_float4(sum(v) * factor_.value, sum(v + 1) * factor_.value,
                                           sum(v + 4) * factor_.value, sum(v + 5) * factor_.value);
          if (inside && column + 16 * (first + n) < p.i)
            __stcs(reinterpret_cast<float4*>(line + 16 * (first + n)),
                   make_float4(before[n].x + value.x, before[n].y + value.y, before[n].z + value.z,
                               before[n].w + value.w));
        }
      }
    }
  }

  const Params& params_;
  const Work work_;
  RunningFactor factor_;
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

template <GemmSchedule kSchedule>
ClippedSumPlan plan(const ClippedSumProblem* problems, int count, ClippedSumPlan wish) {
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
  if (wish.splits <= 0) {
    // In units of one tile's product over 64 positions, some 0.6 us (0.3 for the half tile): what
    // a tile costs beside its products, a launch, and 3 TB/s for writing and reading the parts.
    const double unit = Shape::kPingPong ? 0.3e-6 : 0.6e-6;
    const double per_tile = 4, per_launch = 4e-6 / unit * count;
    double least = 0;
    for (int splits = 1; splits <= 16 && (splits == 1 || k_tiles / splits >= 8); ++splits) {
      const double rounds = static_cast<double>((tiles * splits + clusters - 1) / clusters);
      double cost = rounds * (static_cast<double>(k_tiles) / splits + per_tile);
      if (splits > 1)
        cost += per_launch + static_cast<double>(elements) * 8.0 * splits / 3e12 / unit;
      if (wish.splits <= 0 || cost < least) {
        wish.splits = splits;
        least = cost;
      }
    }
  }
  wish.scratch = wish.splits > 1 ? wish.splits * elements : 0;
  return wish;
}

GemmSchedule choose(GemmSchedule schedule) {
  return schedule == GemmSchedule::Chosen ? GemmSchedule::Cooperative : schedule;
}

}  // namespace

ClippedSumPlan plan_clipped_sum(const ClippedSumProblem* problems, int count, ClippedSumPlan wish) {
  return choose(wish.schedule) == GemmSchedule::PingPong
             ? plan<GemmSchedule::PingPong>(problems, count, wish)
             : plan<GemmSchedule::Cooperative>(problems, count, wish);
}

void launch_clipped_sum(const ClippedSumProblem* problems, int count, const float* factors,
                        bool accumulate, const ClippedSumPlan& plan, float* scratch,
                        void* cuda_stream) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  for (int first = 0; first < count; first += sample_gemm::kMostProblems) {
    const int some = std::min(count - first, sample_gemm::kMostProblems);
    const auto launch = plan.schedule == GemmSchedule::PingPong
                            ? launch_some<GemmSchedule::PingPong>
                            : launch_some<GemmSchedule::Cooperative>;
    launch(problems + first, some, factors, accumulate, plan.splits, scratch, stream);
    if (plan.splits > 1) {
      for (int n = first; n < first + some; ++n)
        scratch += plan.splits * problems[n].in.o * problems[n].in.i;
    }
  }
}

}  // namespace moonshard::kernels
