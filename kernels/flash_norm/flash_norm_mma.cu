// ||g_b^T a_b||^2 on any GPU since Ampere. A block of threads forms one 128 x 128 tile of one
// sample's gradient in registers, squares it and discards it. Every warp stores the sum of its
// piece; a second, tiny kernel adds these in double in a fixed order, so that results repeat bit
// for bit. Two blocks share a multiprocessor: one multiplies while the other begins or ends.
#include <cuda_runtime.h>

#include <algorithm>
#include <climits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/common/architecture.h"
#include "kernels/common/mma_bf16.cuh"
#include "kernels/flash_norm/flash_norm_launch.h"

namespace moonshard::kernels {
namespace {

using Element = __nv_bfloat16;
using Layout = mma::SumFirst;

constexpr int kMostProblems = 16;  // of a launch: their table is a kernel parameter
constexpr int kDepth = mma::kTerms;
constexpr int kStages = 3;  // 48 KB: two blocks fit into the smallest shared memory since Ampere
constexpr int kTileBytes = kDepth * Layout::kRowBytes;
constexpr int kStageBytes = 2 * kTileBytes;

struct TiledProblem {
  const Element *a, *g;
  int64_t a_row, a_sample, g_row, g_sample;
  int i, o, positions;
  int tiles_i, tiles_o;
  int first_tile;

  __host__ __device__ int tiles_per_sample() const { return tiles_o * tiles_i; }
};

struct ProblemTable {
  TiledProblem problem[kMostProblems];
  int count;
};

// Brings one operand's next kDepth positions of the tile's 128 columns, kPass positions at a time.
class OperandReader {
 public:
  __device__ __forceinline__ OperandReader(const Element* sample, int64_t row_stride, int width,
                                           int first_column, int positions, int thread)
      : stride_(static_cast<uint32_t>(row_stride / mma::kUnit)) {
    constexpr int kUnits = mma::kBlockTile / mma::kUnit;
    const int unit = thread % kUnits, row = thread / kUnits;
    const int column = first_column + unit * mma::kUnit;
    const bool inside = column < width;  // widths are multiples of a unit
    at_ = reinterpret_cast<const uint4*>(sample + row * row_stride + (inside ? column : 0));
    left_ = inside ? positions - row : 0;
    to_ = static_cast<uint32_t>(mma::unit_at<Layout::kRowBytes>(row, unit));
  }

  __device__ __forceinline__ void read(uint32_t tile) {
    static_assert(kPass % 8 == 0, "a pass further, a unit has the same place in its row");
#pragma unroll
    for (int pass = 0; pass < kDepth / kPass; ++pass) {
      mma::copy_unit(tile + to_ + pass * kPass * Layout::kRowBytes,
                     at_ + uint64_t{stride_} * (pass * kPass), pass * kPass < left_);
    }
    at_ += uint64_t{stride_} * kDepth;
    left_ -= kDepth;
  }

 private:
  static constexpr int kPass = mma::kThreads * mma::kUnit / mma::kBlockTile;

  const uint4* at_;
  uint32_t stride_;  // from position to position, in units: a register less than in elements
  int left_;         // positions from this thread's next one to the end; none for columns outside
  uint32_t to_;
};

__device__ __forceinline__ float sum_of_squares(const mma::WarpTile& gradient) {
  float part[4] = {0, 0, 0, 0};
#pragma unroll
  for (int m = 0; m < mma::kWarpRows / 16; ++m) {
#pragma unroll
    for (int n = 0; n < mma::kWarpColumns / 8; ++n) {
#pragma unroll
      for (int v = 0; v < 4; ++v) part[v] = fmaf(gradient[m][n][v], gradient[m][n][v], part[v]);
    }
  }
  float sum = (part[0] + part[1]) + (part[2] + part[3]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  return sum;
}

__global__ void __launch_bounds__(mma::kThreads, 2)
    flash_norm_mma_kernel(const __grid_constant__ ProblemTable table, double* partials) {
  __shared__ __align__(256) unsigned char memory[kStages * kStageBytes];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int tile = static_cast<int>(blockIdx.x);
  int number = 0;
  while (number + 1 < table.count && tile >= table.problem[number + 1].first_tile) ++number;
  const TiledProblem& p = table.problem[number];
  const int sample = (tile - p.first_tile) / p.tiles_per_sample();
  const mma::TilePlace place =
      mma::banded_tile(p.tiles_o, p.tiles_i, tile - p.first_tile - sample * p.tiles_per_sample());

  OperandReader g(p.g + sample * p.g_sample, p.g_row, p.o, place.row * mma::kBlockTile, p.positions,
                  thread);
  OperandReader a(p.a + sample * p.a_sample, p.a_row, p.i, place.column * mma::kBlockTile,
                  p.positions, thread);
  const uint32_t shared = shared_address(memory);
  const auto read = [&](uint32_t stage) {
    g.read(stage);
    a.read(stage + kTileBytes);
  };
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    read(shared + stage * kStageBytes);  // past the last position: zeros
    mma::end_copies();
  }

  mma::WarpTile gradient = {};
  const uint32_t g_lane = Layout::left(lane, mma::warp_row(warp));
  const uint32_t a_lane = kTileBytes + Layout::right(lane, mma::warp_column(warp));
  const uint32_t last = shared + (kStages - 1) * kStageBytes;
  uint32_t stage = shared;
  for (int chunk = (p.positions + kDepth - 1) / kDepth; chunk > 0; --chunk) {
    mma::wait_for_copies<kStages - 2>();
    // All threads' copies of this stage have arrived, and no thread reads the previous one any
    // more.
    __syncthreads();
    read(stage == shared ? last : stage - kStageBytes);
    mma::end_copies();
    mma::add_terms<Layout>(gradient, stage + g_lane, stage + a_lane, 0);
    stage = stage == last ? shared : stage + kStageBytes;
  }

  const float sum = sum_of_squares(gradient);
  if (lane == 0) partials[int64_t{tile} * mma::kBlockWarps + warp] = sum;
}

struct PartialSums {
  int64_t first, count;  // of sample 0; further samples follow
  int row;               // in the result
};

struct PartialTable {
  PartialSums problem[kMostProblems];
};

// A block per (sample, problem).
__global__ void __launch_bounds__(mma::kThreads)
    flash_norm_mma_add_kernel(const __grid_constant__ PartialTable table, const double* partials,
                              double* squares) {
  __shared__ double sums[mma::kThreads];
  const PartialSums& p = table.problem[blockIdx.y];
  const double* const mine = partials + p.first + blockIdx.x * p.count;
  double sum = 0;
  for (int64_t at = threadIdx.x; at < p.count; at += mma::kThreads) sum += mine[at];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = mma::kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) squares[int64_t{p.row} * gridDim.x + blockIdx.x] = sums[0];
}

int64_t tiles_along(int64_t width) {
  return (width + mma::kBlockTile - 1) / mma::kBlockTile;
}

int64_t tiles_of(const SampleOperands& in) {
  return in.samples * tiles_along(in.o) * tiles_along(in.i);
}

void launch_some(const FlashNormProblem* problems, int count, int first_row, double* partials,
                 double* squares, cudaStream_t stream) {
  // Longest tiles first, so that short ones fill the end.
  std::vector<int> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
    return problems[x].in.positions > problems[y].in.positions;
  });
  ProblemTable table{};
  PartialTable sums{};
  table.count = count;
  int64_t tiles = 0;
  for (int n = 0; n < count; ++n) {
    const int from = order[static_cast<size_t>(n)];
    const SampleOperands& in = problems[from].in;
    if (tiles + tiles_of(in) > INT_MAX) {
      throw std::runtime_error(
          "flash_norm: expected at most 2^31 tiles of 128 x 128 in a launch, "
          "got " +
          std::to_string(tiles + tiles_of(in)) + "; use smaller micro-batches");
    }
    TiledProblem& to = table.problem[n];
    to.a = static_cast<const Element*>(in.a);
    to.g = static_cast<const Element*>(in.g);
    to.a_row = in.a_row;
    to.a_sample = in.a_sample;
    to.g_row = in.g_row;
    to.g_sample = in.g_sample;
    to.i = static_cast<int>(in.i);
    to.o = static_cast<int>(in.o);
    to.positions = static_cast<int>(in.positions);
    to.tiles_i = static_cast<int>(tiles_along(in.i));
    to.tiles_o = static_cast<int>(tiles_along(in.o));
    to.first_tile = static_cast<int>(tiles);
    sums.problem[n] = {tiles * mma::kBlockWarps, int64_t{to.tiles_per_sample()} * mma::kBlockWarps,
                       first_row + from};
    tiles += tiles_of(in);
  }
  flash_norm_mma_kernel<<<static_cast<unsigned>(tiles), mma::kThreads, 0, stream>>>(table,
                                                                                    partials);
  check_launch("flash_norm");
  const dim3 grid(static_cast<unsigned>(problems[0].in.samples), static_cast<unsigned>(count));
  flash_norm_mma_add_kernel<<<grid, mma::kThreads, 0, stream>>>(sums, partials, squares);
  check_launch("flash_norm");
}

}  // namespace

int64_t flash_norm_mma_scratch(const FlashNormProblem* problems, int count) {
  int64_t most = 0;  // launches follow each other on one stream and may share the memory
  for (int first = 0; first < count; first += kMostProblems) {
    int64_t tiles = 0;
    for (int n = first; n < std::min(count, first + kMostProblems); ++n)
      tiles += tiles_of(problems[n].in);
    most = std::max(most, tiles);
  }
  return most * mma::kBlockWarps;
}

void launch_flash_norm_mma(const FlashNormProblem* problems, int count, double* scratch,
                           double* squares, void* cuda_stream) {
  for (int first = 0; first < count; first += kMostProblems)
    launch_some(problems + first, std::min(count - first, kMostProblems), first, scratch, squares,
                static_cast<cudaStream_t>(cuda_stream));
}

}  // namespace moonshard::kernels
