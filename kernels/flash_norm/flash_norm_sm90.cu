// ||g_b^T a_b||^2 tile by tile: a tile of the gradient lives in registers, is squared there and
// discarded, or also stored in float16, each 128 neighbours in a unit of their own. Every
// warp stores the sum of its piece of a tile; a second, tiny kernel adds these in a fixed order, so
// that results repeat bit for bit.
#include <cuda_fp16.h>

#include <numeric>
#include <vector>

#include "kernels/common/architecture.h"
#include "kernels/common/sample_gemm_sm90.cuh"
#include "kernels/flash_norm/flash_norm_launch.h"

namespace moonshard::kernels {
namespace {

using sample_gemm::Work;

__device__ __forceinline__ uint32_t bits(__half2 pair) {
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Of the power of two that takes a unit's largest number to between 2^14 and 2^15; it and its
// inverse are normal numbers.
__device__ __forceinline__ int unit_exponent(float largest) {
  constexpr int kBias = 127, kLargestHalf = 14, kLeast = -100;
  const int field = __float_as_int(largest) >> 23;
  if (field == 0xff) return 0;  // not finite: so are the stored numbers, and the norm
  return max(field - kBias - kLargestHalf, kLeast);
}

__device__ __forceinline__ float power_of_two(int exponent) {
  return __int_as_float((exponent + 127) << 23);
}

// A 4 x 4 transposition between the four lanes that share a row: lane q sends its word number r to
// lane r. Afterwards a lane holds 8 neighbouring columns: 16 bytes, one store.
__device__ __forceinline__ void transpose_in_quad(uint32_t (&word)[4]) {
  const bool odd = (threadIdx.x & 1) != 0, high = (threadIdx.x & 2) != 0;
  CUTLASS_PRAGMA_UNROLL
  for (int j = 0; j < 4; j += 2) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? word[j] : word[j + 1], 1);
    word[j] = odd ? got : word[j];
    word[j + 1] = odd ? word[j + 1] : got;
  }
  CUTLASS_PRAGMA_UNROLL
  for (int j = 0; j < 2; ++j) {
    const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? word[j] : word[j + 2], 2);
    word[j] = high ? got : word[j];
    word[j + 2] = high ? word[j + 2] : got;
  }
}

template <class Shape_>
class FlashNorm {
 public:
  using Shape = Shape_;
  static constexpr int kValues = Shape::kValues;
  static_assert(Shape::kTileI % kUnitElements == 0);

  struct Problem : sample_gemm::TiledProblem<Shape> {
    __half* kept;
    float* units;
    int64_t unit_sample;
    int rows_per_unit;
  };
  struct Params {
    Problem problem[sample_gemm::kMostProblems];
    int num_problems, num_tiles;
    double* partials;  // [num_tiles, blocks of a cluster, warps of a tile]
  };
  struct Shared {};

  // A tile is the whole sum of one sample.
  struct Segments {
    __device__ __forceinline__ Segments(const Params& params, const Shared&, const Work& work)
        : sample(work.slice), tiles(params.problem[work.problem].k_tiles) {}
    __device__ __forceinline__ sample_gemm::Segment at(int) const { return {sample, 0, tiles}; }
    __device__ __forceinline__ int k_tiles() const { return tiles; }

    static constexpr int count = 1;
    int sample, tiles;
  };

  __device__ static void prepare(const Params&, Shared&) {}

  __device__ __forceinline__ FlashNorm(const Params& params, const Shared&, const Work& work)
      : params_(params), work_(work) {}

  template <class Accumulators>
  __device__ __forceinline__ bool enter(Accumulators&, int) {
    return true;
  }

  template <class Accumulators>
  __device__ __forceinline__ void finish(const Accumulators& gradient, int) {
    const Problem& p = params_.problem[work_.problem];
    double sum = 0;
    if (p.kept == nullptr) {
      float part[4] = {0, 0, 0, 0};
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kValues; ++v) part[v % 4] = fmaf(gradient(v), gradient(v), part[v % 4]);
      sum = (part[0] + part[1]) + (part[2] + part[3]);
    } else {
      CUTLASS_PRAGMA_UNROLL
      for (int first = 0; first < kValues / 4; first += kUnitGroups) {
        float largest[2] = {largest_of(gradient, first, 0), largest_of(gradient, first, 1)};
        if (p.rows_per_unit > 1) join_rows(largest, p.rows_per_unit);
        CUTLASS_PRAGMA_UNROLL
        for (int h = 0; h < 2; ++h) sum += keep(gradient, first, h, unit_exponent(largest[h]), p);
      }
    }
    CUTLASS_PRAGMA_UNROLL
    for (int distance = 16; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) {
      const int rank = static_cast<int>(cute::block_rank_in_cluster());
      const int64_t block = int64_t{work_.tile} * sample_gemm::kClusterBlocks + rank;
      params_.partials[block * Shape::kTileWarps + sample_gemm::warp_in_tile<Shape>()] = sum;
    }
  }

 private:
  static constexpr int kUnitGroups = kUnitElements / 8;  // of eight columns

  // Of row h, in the groups of columns from `first` on, which four lanes hold. What is no number is
  // left out: it shows in the norm.
  template <class Accumulators>
  __device__ __forceinline__ static float largest_of(const Accumulators& gradient, int first,
                                                     int h) {
    float largest = 0;
    CUTLASS_PRAGMA_UNROLL
    for (int j = first; j < first + kUnitGroups; ++j) {
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < 2; ++e) largest = fmaxf(largest, fabsf(gradient(4 * j + 2 * h + e)));
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    return fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
  }

  // Narrow gradients: 2, 4, 8 or 16 rows share a unit. A warp has rows 0 to 7 with h = 0, four
  // lanes each, and 8 to 15 with h = 1.
  __device__ __forceinline__ static void join_rows(float (&largest)[2], int rows) {
    for (int distance = 4; distance < 4 * min(rows, 8); distance *= 2) {
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h)
        largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], distance));
    }
    if (rows == 16) largest[0] = largest[1] = fmaxf(largest[0], largest[1]);
  }

  // Stores what largest_of looks at, in units of 2^exponent. Returns the squares of what this lane
  // stored.
  template <class Accumulators>
  __device__ __forceinline__ double keep(const Accumulators& gradient, int first, int h,
                                         int exponent, const Problem& p) const {
    constexpr int kGroups = kUnitGroups;
    const float scale = power_of_two(-exponent), unit = power_of_two(exponent);
    uint32_t words[kGroups];
    float part[2] = {0, 0};
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kGroups; ++j) {
      const int v = 4 * (first + j) + 2 * h;
      const __half2 pair = __floats2half2_rn(gradient(v) * scale, gradient(v + 1) * scale);
      const float2 rounded = __half22float2(pair);
      part[0] = fmaf(rounded.x, rounded.x, part[0]);
      part[1] = fmaf(rounded.y, rounded.y, part[1]);
      words[j] = bits(pair);
    }
    const int row = work_.row + sample_gemm::thread_row<Shape>() + 8 * h;
    const int column = work_.column + 8 * first, quarter = 8 * (threadIdx.x % 4);
    const int64_t sample = work_.slice, line = int64_t{row} * p.i + column;
    const bool inside = row < p.o && column < p.i;
    if (inside && threadIdx.x % 4 == 0)
      p.units[sample * p.unit_sample + line / kUnitElements] = unit;
    __half* const to = p.kept + sample * p.o * p.i + line + quarter;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kGroups; j += 4) {  // 4 groups of 8 columns each
      uint32_t word[4] = {words[j], words[j + 1], words[j + 2], words[j + 3]};
      transpose_in_quad(word);
      // Read again only once the norms of all layers are known: not worth caching in L2.
      if (inside && column + quarter + 8 * j < p.i)
        __stcs(reinterpret_cast<uint4*>(to + 8 * j),
               make_uint4(word[0], word[1], word[2], word[3]));
    }
    const double root = unit;
    return root * root * (part[0] + part[1]);
  }

  const Params& params_;
  const Work work_;
};

struct PartialSums {
  int64_t first, count;  // of sample 0; further samples follow
  int row;               // in the result
};

struct PartialTable {
  PartialSums problem[sample_gemm::kMostProblems];
};

__global__ void flash_norm_add_kernel(const __grid_constant__ PartialTable table,
                                      const double* partials, double* squares) {
  constexpr int kAdders = 256;
  __shared__ double sums[kAdders];
  const PartialSums& p = table.problem[blockIdx.y];
  const int sample = blockIdx.x, samples = gridDim.x;
  const double* mine = partials + p.first + sample * p.count;
  double sum = 0;
  for (int64_t at = threadIdx.x; at < p.count; at += kAdders) sum += mine[at];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kAdders / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) squares[int64_t{p.row} * samples + sample] = sums[0];
}

template <GemmSchedule kSchedule>
int64_t scratch(const FlashNormProblem* problems, int count) {
  using Shape = sample_gemm::Shape<kSchedule>;
  int64_t most = 0;  // launches follow each other on one stream and may share the memory
  for (int first = 0; first < count; first += sample_gemm::kMostProblems) {
    int64_t tiles = 0;
    for (int n = first; n < std::min(count, first + sample_gemm::kMostProblems); ++n)
      tiles += sample_gemm::count_tiles<Shape>(problems[n].in) * problems[n].in.samples;
    most = std::max(most, tiles);
  }
  return most * sample_gemm::kClusterBlocks * Shape::kTileWarps;
}

template <GemmSchedule kSchedule>
void launch_some(const FlashNormProblem* problems, int count, int first_row, double* partials,
                 double* squares, cudaStream_t stream) {
  using Shape = sample_gemm::Shape<kSchedule>;
  using Operation = FlashNorm<Shape>;
  // Longest tiles first, so that short ones fill the end.
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
    return problems[x].in.positions > problems[y].in.positions;
  });
  const int samples = static_cast<int>(problems[0].in.samples);
  typename Operation::Params params{};
  PartialTable table{};
  params.num_problems = count;
  params.partials = partials;
  constexpr int64_t kPartials = sample_gemm::kClusterBlocks * Shape::kTileWarps;  // of a tile
  for (int n = 0; n < count; ++n) {
    const FlashNormProblem& from = problems[order[n]];
    auto& to = params.problem[n];
    const int first_tile = params.num_tiles;
    params.num_tiles = sample_gemm::describe_problem<Shape>(to, from.in, samples, first_tile);
    to.kept = static_cast<__half*>(from.kept);
    to.units = from.units;
    to.unit_sample = from.unit_sample;
    to.rows_per_unit = static_cast<int>(std::max<int64_t>(1, kUnitElements / from.in.i));
    table.problem[n] = {first_tile * kPartials, to.tiles_per_slice() * kPartials,
                        first_row + order[n]};
  }
  sample_gemm::launch<Operation>(params, stream);
  check_launch("flash_norm");
  flash_norm_add_kernel<<<dim3(samples, count), 256, 0, stream>>>(table, partials, squares);
  check_launch("flash_norm");
}

template <GemmSchedule kSchedule>
void launch_all(const FlashNormProblem* problems, int count, double* partials, double* squares,
                cudaStream_t stream) {
  for (int first = 0; first < count; first += sample_gemm::kMostProblems)
    launch_some<kSchedule>(problems + first, std::min(count - first, sample_gemm::kMostProblems),
                           first, partials, squares, stream);
}

// Without stores the epilogue is short, and the larger tile reads less.
GemmSchedule choose(GemmSchedule schedule) {
  return schedule == GemmSchedule::Chosen ? GemmSchedule::Cooperative : schedule;
}

}  // namespace

int64_t flash_norm_scratch(const FlashNormProblem* problems, int count, GemmSchedule schedule) {
  return choose(schedule) == GemmSchedule::PingPong
             ? scratch<GemmSchedule::PingPong>(problems, count)
             : scratch<GemmSchedule::Cooperative>(problems, count);
}

void launch_flash_norm(const FlashNormProblem* problems, int count, double* partials,
                       double* squares, GemmSchedule schedule, void* cuda_stream) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  if (choose(schedule) == GemmSchedule::PingPong)
    launch_all<GemmSchedule::PingPong>(problems, count, partials, squares, stream);
  else
    launch_all<GemmSchedule::Cooperative>(problems, count, partials, squares, stream);
}

}  // namespace moonshard::kernels
