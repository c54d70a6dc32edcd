// ||g_b^T a_b||^2 tile by tile: a tile of the gradient lives in registers, is squared there and
// discarded, or also stored in float16. Every warp stores the sum of its piece of a tile; a second,
// tiny kernel adds these in double in a fixed order, so that results repeat bit for bit.
#include <cuda_fp16.h>

#include <cfloat>
#include <numeric>
#include <vector>

#include "kernels/common/architecture.h"
#include "kernels/common/sample_gemm_sm90.cuh"
#include "kernels/flash_norm/flash_norm_launch.h"

namespace moonshard::kernels {
namespace {

using sample_gemm::kValues;
using sample_gemm::Work;

__device__ __forceinline__ uint32_t bits(__half2 pair) {
  return *reinterpret_cast<const uint32_t*>(&pair);
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

  struct Problem : sample_gemm::TiledProblem<Shape> {
    __half* kept;
    const float* scale;
  };
  struct Params {
    Problem problem[sample_gemm::kMostProblems];
    int num_problems, num_tiles;
    float* partials;  // [num_tiles, blocks of a cluster, warps of a tile]
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
    float sum;
    if (p.kept == nullptr) {
      float part[4] = {0, 0, 0, 0};
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kValues; ++v) part[v % 4] = fmaf(gradient(v), gradient(v), part[v % 4]);
      sum = (part[0] + part[1]) + (part[2] + part[3]);
    } else {
      const float scale = p.scale[work_.slice];
      uint32_t words[kValues / 2];
      CUTLASS_PRAGMA_UNROLL
      for (int w = 0; w < kValues / 2; ++w)
        words[w] = bits(__floats2half2_rn(gradient(2 * w) * scale, gradient(2 * w + 1) * scale));
      sum = squares_of(words);
      if (!(sum <= FLT_MAX)) {  // infinity among the rounded values: rare
        clamp_finite(gradient, words);
        sum = squares_of(words);
      }
      store(words, p);
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
  __device__ __forceinline__ static float squares_of(const uint32_t (&words)[kValues / 2]) {
    float part[4] = {0, 0, 0, 0};
    CUTLASS_PRAGMA_UNROLL
    for (int w = 0; w < kValues / 2; ++w) {
      const float2 value = __half22float2(*reinterpret_cast<const __half2*>(&words[w]));
      part[w % 2] = fmaf(value.x, value.x, part[w % 2]);
      part[w % 2 + 2] = fmaf(value.y, value.y, part[w % 2 + 2]);
    }
    return (part[0] + part[1]) + (part[2] + part[3]);
  }

  // Finite values that rounding made infinite become the largest float16.
  template <class Accumulators>
  __device__ __forceinline__ static void clamp_finite(const Accumulators& gradient,
                                                      uint32_t (&words)[kValues / 2]) {
    constexpr uint32_t kInfinity = 0x7c00, kLargest = 0x7bff, kNoSign = 0x7fff;
    CUTLASS_PRAGMA_UNROLL
    for (int v = 0; v < kValues; ++v) {
      const int shift = 16 * (v % 2);
      const uint32_t magnitude = words[v / 2] >> shift & kNoSign;
      if (magnitude == kInfinity && fabsf(gradient(v)) <= FLT_MAX)
        words[v / 2] ^= (kInfinity ^ kLargest) << shift;
    }
  }

  __device__ __forceinline__ void store(const uint32_t (&words)[kValues / 2],
                                        const Problem& p) const {
    const int row = work_.row + sample_gemm::thread_row<Shape>();
    const int column = work_.column + 8 * (threadIdx.x % 4);
    const int64_t width = p.i;
    __half* const sample = p.kept + int64_t{work_.slice} * p.o * width;
    __half* const lines[2] = {sample + row * width + column, sample + (row + 8) * width + column};
    CUTLASS_PRAGMA_UNROLL
    for (int first = 0; first < kValues / 4; first += 4) {  // 4 groups of 8 columns each
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        uint32_t word[4];
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < 4; ++j) word[j] = words[2 * (first + j) + h];
        transpose_in_quad(word);
        // Read again only once the norms of all layers are known: not worth caching in L2.
        if (row + 8 * h < p.o && column + 8 * first < p.i)
          __stcs(reinterpret_cast<uint4*>(lines[h] + 8 * first),
                 make_uint4(word[0], word[1], word[2], word[3]));
      }
    }
  }

  const Params& params_;
  const Work work_;
};

struct PartialSums {
  int64_t first, count;  // of sample 0; further samples follow
  const float* scale;
  int row;  // in the result
};

struct PartialTable {
  PartialSums problem[sample_gemm::kMostProblems];
};

__global__ void flash_norm_add_kernel(const __grid_constant__ PartialTable table,
                                      const float* partials, double* squares) {
  constexpr int kAdders = 256;
  __shared__ double sums[kAdders];
  const PartialSums& p = table.problem[blockIdx.y];
  const int sample = blockIdx.x, samples = gridDim.x;
  const float* mine = partials + p.first + sample * p.count;
  double sum = 0;
  for (int64_t at = threadIdx.x; at < p.count; at += kAdders) sum += mine[at];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kAdders / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    const double scale = p.scale != nullptr ? static_cast<double>(p.scale[sample]) : 1.0;
    squares[int64_t{p.row} * samples + sample] = sums[0] / (scale * scale);
  }
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
void launch_some(const FlashNormProblem* problems, int count, int first_row, float* partials,
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
    to.scale = from.kept != nullptr ? from.scale : nullptr;
    table.problem[n] = {first_tile * kPartials, to.tiles_per_slice() * kPartials, to.scale,
                        first_row + order[n]};
  }
  sample_gemm::launch<Operation>(params, stream);
  check_launch("flash_norm");
  flash_norm_add_kernel<<<dim3(samples, count), 256, 0, stream>>>(table, partials, squares);
  check_launch("flash_norm");
}

template <GemmSchedule kSchedule>
void launch_all(const FlashNormProblem* problems, int count, float* partials, double* squares,
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

void launch_flash_norm(const FlashNormProblem* problems, int count, float* partials,
                       double* squares, GemmSchedule schedule, void* cuda_stream) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  if (choose(schedule) == GemmSchedule::PingPong)
    launch_all<GemmSchedule::PingPong>(problems, count, partials, squares, stream);
  else
    launch_all<GemmSchedule::Cooperative>(problems, count, partials, squares, stream);
}

}  // namespace moonshard::kernels
