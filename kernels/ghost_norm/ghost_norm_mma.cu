// Ghost norms on any GPU since Ampere. A block of threads takes one 128 x 128 tile of one sample's
// Gram matrices, on or below the diagonal: a_b a_b^T once into registers, then g_b g_b^T of each
// layer of the group, multiplied with it element by element. Copies run on from one matrix to the
// next. Every warp leaves a partial sum; launch_ghost_norm_reduce adds them in a fixed order.
#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/common/architecture.h"
#include "kernels/common/mma_bf16.cuh"
#include "kernels/ghost_norm/ghost_norm_launch.h"
#include "kernels/ghost_norm/ghost_norm_schedule.h"

namespace moonshard::kernels {
namespace {

using Element = __nv_bfloat16;
using Layout = mma::SumLast;

constexpr int kTile = mma::kBlockTile;
constexpr int kDepth = Layout::kRowBytes / static_cast<int>(sizeof(Element));
// 96 KB: the most that fits into a multiprocessor of every GPU since Ampere (99 KB on some).
constexpr int kStages = 3;
constexpr int kTileBytes = kTile * Layout::kRowBytes;
constexpr int kStageBytes = 2 * kTileBytes;
// Groups and tensors of a launch: their table is a kernel parameter.
constexpr int kMostGroups = 32, kMostTensors = 64;

// Sums of 32 terms (mma_bf16.cuh) lose up to 7e-8 of a sum of squares, and two of those are
// multiplied. No norm should come out too small.
constexpr double kGain = 1 + 0x1p-22;

struct Tensor {
  const Element* data;
  int64_t token_stride, sample_stride;
  int width;
};

struct Group {
  int first_tile, tiles;  // of one sample; further samples follow
  int tokens;
  int first_tensor, layers;  // a, then each layer's g
  int64_t first_pair;
};

struct GhostTable {
  Tensor tensor[kMostTensors];
  Group group[kMostGroups];
  int groups, samples;
  float2* pairs;
};

// The stages in shared memory, and the copies into them: kDepth columns of the tile's 128 row
// positions and of its 128 column positions, tensor after tensor. A tile on the diagonal has one
// set of positions for both.
class Stages {
 public:
  __device__ __forceinline__ Stages(const GhostTable& table, const Group& group, int sample,
                                    const mma::TilePlace& place, uint32_t shared)
      : table_(table),
        group_(group),
        sample_(sample),
        tensor_(group.first_tensor),
        begin_(shared),
        now_(shared),
        diagonal_(place.row == place.column) {
    const int row = static_cast<int>(threadIdx.x) / kUnits;
    left_[0] = group.tokens - place.row * kTile - row;
    left_[1] = group.tokens - place.column * kTile - row;
    to_ = static_cast<uint32_t>(mma::unit_at<Layout::kRowBytes>(row, column() / mma::kUnit));
    begin_tensor();
    for (int stage = 0; stage < kStages - 1; ++stage) copy(shared + stage * kStageBytes);
  }

  // The next stage that is filled, for this block's warps to read until they ask again.
  __device__ __forceinline__ uint32_t next() {
    mma::wait_for_copies<kStages - 2>();
    // All threads' copies of this stage have arrived, and no thread reads the previous one any
    // more.
    __syncthreads();
    const uint32_t last = begin_ + (kStages - 1) * kStageBytes, filled = now_;
    copy(filled == begin_ ? last : filled - kStageBytes);
    now_ = filled == last ? begin_ : filled + kStageBytes;
    return filled;
  }

  // From the start of a stage to the positions of the tile's columns.
  __device__ __forceinline__ uint32_t columns() const { return diagonal_ ? 0 : kTileBytes; }

 private:
  static constexpr int kUnits = kDepth / mma::kUnit;
  static constexpr int kPass = mma::kThreads / kUnits;  // positions that all threads copy at once
  static_assert(kPass % 8 == 0, "a pass further, a unit has the same place in its row");

  // This thread's first column of each stage.
  __device__ __forceinline__ static int column() {
    return static_cast<int>(threadIdx.x) % kUnits * mma::kUnit;
  }

  __device__ __forceinline__ void begin_tensor() {
    const Tensor& x = table_.tensor[tensor_];
    const Element* const start = x.data + sample_ * x.sample_stride + column();
    from_[0] = start + (group_.tokens - left_[0]) * x.token_stride;
    from_[1] = start + (group_.tokens - left_[1]) * x.token_stride;
    width_left_ = x.width;
  }

  // Addresses past the width or past the last position are never read and may be invalid.
  __device__ __forceinline__ void copy_side(uint32_t tile, int side) {
    const int64_t pass_stride = kPass * table_.tensor[tensor_].token_stride;
    const int left = column() < width_left_ ? left_[side] : 0;  // widths are multiples of a unit
#pragma unroll
    for (int pass = 0; pass < kTile / kPass; ++pass) {
      mma::copy_unit(tile + to_ + pass * kPass * Layout::kRowBytes,
                     from_[side] + pass * pass_stride, pass * kPass < left);
    }
    from_[side] += kDepth;
  }

  __device__ __forceinline__ void copy(uint32_t stage) {
    if (tensor_ <= group_.first_tensor + group_.layers) {
      copy_side(stage, 0);
      if (!diagonal_) copy_side(stage + kTileBytes, 1);
      width_left_ -= kDepth;
      if (width_left_ <= 0 && ++tensor_ <= group_.first_tensor + group_.layers) begin_tensor();
    }
    mma::end_copies();  // counted, also where nothing is left to copy
  }

  const GhostTable& table_;
  const Group& group_;
  const Element* from_[2];
  int left_[2];  // positions from this thread's first one to the end, of rows and of columns
  int sample_, tensor_, width_left_;
  uint32_t begin_, now_, to_;
  bool diagonal_;
};

__device__ __forceinline__ void form_gram(mma::WarpTile& gram, int width, Stages& stages,
                                          uint32_t left, uint32_t right) {
#pragma unroll
  for (int m = 0; m < mma::kWarpRows / 16; ++m) {
#pragma unroll
    for (int n = 0; n < mma::kWarpColumns / 8; ++n) {
#pragma unroll
      for (int v = 0; v < 4; ++v) gram[m][n][v] = 0;
    }
  }
  for (int done = 0; done < width; done += kDepth) {
    const uint32_t stage = stages.next();
#pragma unroll 1  // both at once need more registers than there are
    for (int along = 0; along < kDepth / 16; along += mma::kTerms / 16)
      mma::add_terms<Layout>(gram, stage + left, stage + right, along);
  }
}

// x: sum of products; y: sum of their absolute values.
__device__ __forceinline__ float2 warp_sums(const mma::WarpTile& a, const mma::WarpTile& g) {
  float value[4] = {0, 0, 0, 0}, magnitude[4] = {0, 0, 0, 0};
#pragma unroll
  for (int m = 0; m < mma::kWarpRows / 16; ++m) {
#pragma unroll
    for (int n = 0; n < mma::kWarpColumns / 8; ++n) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const float product = a[m][n][v] * g[m][n][v];
        value[v] += product;
        magnitude[v] += fabsf(product);
      }
    }
  }
  float2 sum{(value[0] + value[1]) + (value[2] + value[3]),
             (magnitude[0] + magnitude[1]) + (magnitude[2] + magnitude[3])};
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, lanes);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, lanes);
  }
  return sum;
}

__global__ void __launch_bounds__(mma::kThreads, 1)
    ghost_norm_sums_mma_kernel(const __grid_constant__ GhostTable table) {
  extern __shared__ __align__(256) unsigned char memory[];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int tile = static_cast<int>(blockIdx.x);
  int number = 0;
  while (number + 1 < table.groups && tile >= table.group[number + 1].first_tile) ++number;
  const Group& group = table.group[number];
  const int sample = (tile - group.first_tile) / group.tiles;
  const int slot = tile - group.first_tile - sample * group.tiles;
  const mma::TilePlace place = mma::triangle_tile(slot);

  Stages stages(table, group, sample, place, shared_address(memory));
  const uint32_t left = Layout::left(lane, mma::warp_row(warp));
  const uint32_t right = stages.columns() + Layout::right(lane, mma::warp_column(warp));
  mma::WarpTile a_gram, g_gram;
  form_gram(a_gram, table.tensor[group.first_tensor].width, stages, left, right);
  const float times = place.row == place.column ? 1.0f : 2.0f;
  for (int k = 0; k < group.layers; ++k) {
    form_gram(g_gram, table.tensor[group.first_tensor + 1 + k].width, stages, left, right);
    const float2 sum = warp_sums(a_gram, g_gram);
    if (lane == 0) {
      const int64_t at = (int64_t{k} * table.samples + sample) * group.tiles + slot;
      table.pairs[group.first_pair + at * mma::kBlockWarps + warp] =
          make_float2(times * sum.x, times * sum.y);
    }
  }
}

// ---- host ----

// Tiles of one sample on and below the diagonal.
int64_t tiles_of(const GhostGroupView& group) {
  const int64_t n = (group.tokens + kTile - 1) / kTile;
  return n * (n + 1) / 2;
}

int64_t pairs_of(const GhostGroupView& group, int64_t samples) {
  return static_cast<int64_t>(group.g.size()) * samples * tiles_of(group) * mma::kBlockWarps;
}

int64_t width_of(const GhostGroupView& group) {
  int64_t width = group.a.width;
  for (const GhostOperand& g : group.g) width += g.width;
  return width;
}

void launch_groups(const std::vector<const GhostGroupView*>& groups, int64_t samples,
                   const GhostResults& results, float2* pairs, void* stream) {
  GhostTable table{};
  std::vector<GhostPartials> partials;
  int tensors = 0;
  int64_t tiles = 0, next_pair = 0;
  for (const GhostGroupView* group : groups) {
    Group& entry = table.group[table.groups++];
    entry.first_tile = static_cast<int>(tiles);
    entry.tiles = static_cast<int>(tiles_of(*group));
    entry.tokens = static_cast<int>(group->tokens);
    entry.first_tensor = tensors;
    entry.layers = static_cast<int>(group->g.size());
    entry.first_pair = next_pair;
    tiles += tiles_of(*group) * samples;
    const auto add = [&](const GhostOperand& x) {
      // The stride of a dimension of size 1 is never used, and PyTorch leaves anything in it, yet
      // addresses of what is not read must be aligned, too.
      table.tensor[tensors++] = {static_cast<const Element*>(x.data),
                                 group->tokens > 1 ? x.token_stride : 0,
                                 samples > 1 ? x.sample_stride : 0, static_cast<int>(x.width)};
    };
    add(group->a);
    const int64_t per_sample = tiles_of(*group) * mma::kBlockWarps;
    for (size_t k = 0; k < group->g.size(); ++k) {
      add(group->g[k]);
      partials.push_back(
          {reinterpret_cast<const float*>(pairs + next_pair), per_sample, group->rows[k], kGain});
      next_pair += per_sample * samples;
    }
  }
  table.samples = static_cast<int>(samples);
  table.pairs = pairs;
  constexpr int64_t kMostTiles = (int64_t{1} << 31) - 1;
  if (tiles > kMostTiles) {
    throw std::runtime_error(
        "ghost_norm: expected at most 2^31 tiles of 128 x 128 in a launch, got " +
        std::to_string(tiles) + "; use smaller micro-batches");
  }
  constexpr int kBytes = kStages * kStageBytes;
  // More than 48 KB must be requested, once per device; repeating the request is cheap.
  cudaFuncSetAttribute(ghost_norm_sums_mma_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       kBytes);
  ghost_norm_sums_mma_kernel<<<static_cast<unsigned>(tiles), mma::kThreads, kBytes,
                               static_cast<cudaStream_t>(stream)>>>(table);
  check_launch("ghost_norm");
  launch_ghost_norm_reduce(partials, samples, results, stream);
}

}  // namespace

int64_t ghost_norm_mma_workspace_bytes(const std::vector<GhostGroupView>& groups, int64_t samples) {
  int64_t pairs = 0;
  for (const GhostGroupView& group : groups) pairs += pairs_of(group, samples);
  return pairs * static_cast<int64_t>(sizeof(float2));
}

void launch_ghost_norm_mma(const std::vector<GhostGroupView>& groups, int64_t samples,
                           const GhostResults& results, void* workspace, void* stream) {
  static_assert(kMostGhostLayers < kMostTensors);
  auto* pairs = static_cast<float2*>(workspace);
  for (auto& batch : ghost_batches(groups, kMostGroups, kMostTensors)) {
    int64_t batch_pairs = 0;
    for (const GhostGroupView* group : batch) batch_pairs += pairs_of(*group, samples);
    // Longest first, so that the last to end are short.
    std::stable_sort(batch.begin(), batch.end(),
                     [](auto* x, auto* y) { return width_of(*x) > width_of(*y); });
    launch_groups(batch, samples, results, pairs, stream);
    pairs += batch_pairs;
  }
}

}  // namespace moonshard::kernels
