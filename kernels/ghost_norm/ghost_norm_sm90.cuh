// The kernel of ghost norms on Hopper: persistent and warp-specialised, for all groups of a
// transformer block in one launch.
//
// Clusters of two blocks; in each block one warpgroup fetches (one thread of it, by the bulk tensor
// copy engine) and two multiply. For a 128 x 128 tile (s, t) of the position pairs they form a a^T
// over the input's width in one set of accumulators, keep it, form g g^T of each layer of the group
// in a second set, multiply the two elementwise and store one sum per warp. Neither matrix ever
// leaves the registers. 64 + 64 float32 accumulators a thread; bfloat16 would halve them, but a
// norm from a rounded Gram matrix is wrong by 1e-4 of what cancels.
//
// A tile on the diagonal is symmetric: its upper right quarter is left out, and the lower left one
// counts twice. Such tiles have the lengths of rows, too: one sum more of each.
//
// A layer by itself may be cut into slices of g's columns, whose sums add up: its tiles are few and
// long (a head's take as long as a block's), and would leave the last round half empty.
//
// Positions past the end, and columns past a width, are read as zeros by the copy engine's bounds
// and add nothing; maps have three dimensions so that a sample's edge is not the next sample's row.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cute/tensor.hpp>
#include <cutlass/pipeline/pipeline.hpp>

#include "kernels/ghost_norm/ghost_norm_launch.h"
#include "kernels/ghost_norm/ghost_norm_tiles.h"
#include "kernels/position_lengths/bounded_square.h"

namespace moonshard::kernels::ghost_gram {

using namespace cute;
using Element = cutlass::bfloat16_t;

constexpr int kTile = 128;       // positions: rows and columns of a tile
constexpr int kDepth = 64;       // columns of a or g per stage: one swizzle span of 128 bytes
constexpr int kBox = 64;         // positions that one block fetches for two: half a tile
constexpr int kStages = 6;       // 32 KiB each
constexpr int kConsumers = 256;  // two warpgroups
constexpr int kThreads = 128 + kConsumers;
constexpr int kWarps = kConsumers / 32;
constexpr uint32_t kStageBytes = 2 * kTile * kDepth * sizeof(Element);

using ClusterShape = Shape<_2, _1, _1>;
using SmemLayout = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<Element>{},
                                          Shape<Int<kTile>, Int<kDepth>, Int<kStages>>{}));
using Warpgroups = Layout<Shape<_2, _1, _1>>;
using TiledMma = decltype(make_tiled_mma(
    SM90_64x128x16_F32BF16BF16_SS<GMMA::Major::K, GMMA::Major::K>{}, Warpgroups{}));
// The same with the first half of the tile's columns: of the accumulators, the first half.
using HalfMma = decltype(make_tiled_mma(
    SM90_64x64x16_F32BF16BF16_SS<GMMA::Major::K, GMMA::Major::K>{}, Warpgroups{}));
using Pipeline = cutlass::PipelineTmaAsync<kStages>;
using PipelineState = cutlass::PipelineState<kStages>;

static_assert(cosize_v<SmemLayout> == kTile * kDepth * kStages);
static_assert(size(TiledMma{}) == kConsumers);

struct SharedStorage {
  alignas(1024) Element rows[cosize_v<SmemLayout>];     // of the tile's row positions s
  alignas(1024) Element columns[cosize_v<SmemLayout>];  // of its column positions t
  alignas(16) Pipeline::SharedStorage pipeline;
};

constexpr int kMostMaps = 32;
constexpr int kMostGroups = 16;
constexpr int kMostClusters = 96;
constexpr int kMostListed = 4096;  // more items than this are assigned round-robin
static_assert(kMostGhostLayers + 1 <= kMostMaps);

struct GroupWork {
  int first_item = 0;
  GhostTileGrid grid;
  int first_map = 0;  // of a; the layers' maps follow
  int layers = 0;
  int slice = 0, slices = 1;                   // of g's columns; several with one layer only
  int64_t first_pair = 0, first_diagonal = 0;  // in the workspace
};

// Stages of one product.
struct Columns {
  int first, count;  // of kDepth columns
};

// Product 0 is a's, over its whole width.
__device__ __forceinline__ Columns columns_of(const GroupWork& group, int product, int blocks) {
  if (product == 0) return {0, blocks};
  const int first = blocks * group.slice / group.slices;
  return {first, blocks * (group.slice + 1) / group.slices - first};
}

// Everything a launch needs, as a kernel parameter: nothing is uploaded.
struct GhostWork {
  // One thread issues all copies, and is kept busy by them: it takes a whole tile in one copy, by
  // the second half of these, wherever a block fetches for itself.
  CUtensorMap map[2 * kMostMaps];
  int blocks[kMostMaps];  // of kDepth columns
  GroupWork group[kMostGroups];
  int groups, items;
  float2* pairs;
  GhostDiagonal* diagonals;
  bool listed;
  uint16_t first[kMostClusters + 1];
  uint16_t item[kMostListed];
};
static_assert(sizeof(GhostWork) <= 32764, "kernel parameters end there");

// The items of this cluster, in turn: f(group, tile).
template <class Function>
__device__ void for_each_tile(const GhostWork& work, int cluster, int clusters, int rank,
                              Function&& f) {
  const int begin = work.listed ? work.first[cluster] : cluster;
  const int end = work.listed ? work.first[cluster + 1] : work.items;
  const int step = work.listed ? 1 : clusters;
  for (int i = begin; i < end; i += step) {
    const int item = work.listed ? work.item[i] : i;
    int g = 0;
    while (g + 1 < work.groups && item >= work.group[g + 1].first_item) ++g;
    const GroupWork& group = work.group[g];
    f(group, ghost_tile(group.grid, item - group.first_item, rank));
  }
}

// Fetches the operands of one matrix product, stage by stage of both operands' tiles. In a joined
// pair each block fetches its half of the columns' tile into both blocks' memory.
__device__ void fetch(const CUtensorMap* map, const Columns& which, const GhostTile& tile, int rank,
                      Pipeline& pipeline, PipelineState& state, SharedStorage& shared) {
  constexpr uint64_t kHint = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL);
  constexpr int kHalf = kBox * kDepth, kWhole = kTile * kDepth;  // elements
  const int row = tile.row * kTile, column = tile.column * kTile;
  const CUtensorMap* whole = map + kMostMaps;
  for (int block = which.first; block < which.first + which.count; ++block) {
    pipeline.producer_acquire(state);
    uint64_t* barrier = pipeline.producer_get_barrier(state);
    Element* rows = shared.rows + state.index() * kWhole;
    Element* columns = shared.columns + state.index() * kWhole;
    const int depth = block * kDepth;
    SM90_TMA_LOAD_3D::copy(whole, barrier, kHint, rows, depth, row, tile.sample);
    if (tile.joined) {
      SM90_TMA_LOAD_MULTICAST_3D::copy(map, barrier, uint16_t{3}, kHint, columns + rank * kHalf,
                                       depth, column + rank * kBox, tile.sample);
    } else {
      SM90_TMA_LOAD_3D::copy(whole, barrier, kHint, columns, depth, column, tile.sample);
    }
    ++state;
  }
}

// accumulators = rows columns^T over `blocks` stages, in as many of the tile's columns as Mma has.
// A stage is handed back once the next stage's products are issued: one batch of products is always
// in flight.
template <class Mma, class Accumulators>
__device__ void multiply(Accumulators& accumulators, int blocks, int thread, Pipeline& pipeline,
                         PipelineState& state, SharedStorage& shared) {
  Mma mma;
  const int warpgroup = __shfl_sync(0xffffffffu, thread / 128, 0);
  auto slice = mma.get_slice(warpgroup * 128);
  const Tensor rows = make_tensor(make_smem_ptr(shared.rows), SmemLayout{});
  const Tensor columns = local_tile(make_tensor(make_smem_ptr(shared.columns), SmemLayout{}),
                                    Shape<Int<tile_size<1>(Mma{})>, Int<kDepth>, Int<kStages>>{},
                                    make_coord(_0{}, _0{}, _0{}));
  const Tensor a = slice.make_fragment_A(slice.partition_A(rows));
  const Tensor b = slice.make_fragment_B(slice.partition_B(columns));
  PipelineState done = state;

  warpgroup_fence_operand(accumulators);
  mma.accumulate_ = GMMA::ScaleOut::Zero;
  {
    pipeline.consumer_wait(state, pipeline.consumer_try_wait(state));
    const int stage = state.index();
    warpgroup_arrive();
    CUTLASS_PRAGMA_UNROLL
    for (int k = 0; k < size<2>(a); ++k) {
      cute::gemm(mma, a(_, _, k, stage), b(_, _, k, stage), accumulators);
      mma.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
    ++state;
  }
  warpgroup_fence_operand(accumulators);
  CUTLASS_PRAGMA_NO_UNROLL
  for (int block = 1; block < blocks; ++block) {
    pipeline.consumer_wait(state, pipeline.consumer_try_wait(state));
    const int stage = state.index();
    warpgroup_fence_operand(accumulators);
    warpgroup_arrive();
    cute::gemm(mma, a(_, _, _, stage), b(_, _, _, stage), accumulators);
    warpgroup_commit_batch();
    warpgroup_wait<1>();
    warpgroup_fence_operand(accumulators);
    pipeline.consumer_release(done);
    ++state;
    ++done;
  }
  warpgroup_wait<0>();
  warpgroup_fence_operand(accumulators);
  pipeline.consumer_release(done);
}

// One half of the columns of two accumulator sets: the thread's sums of products, with and without
// signs, times a weight. Four partial sums each: shorter chains, and less rounding.
template <int kHalf, class Accumulators>
__device__ float2 half_sums(const Accumulators& x, const Accumulators& y, float weight) {
  constexpr int kValues = decltype(size(x))::value / 2;
  float value[4] = {}, magnitude[4] = {};
  CUTLASS_PRAGMA_UNROLL
  for (int i = kHalf * kValues; i < (kHalf + 1) * kValues; ++i) {
    const float product = x(i) * y(i);
    value[i % 4] += product;
    magnitude[i % 4] += fabsf(product);
  }
  return {weight * ((value[0] + value[1]) + (value[2] + value[3])),
          weight * ((magnitude[0] + magnitude[1]) + (magnitude[2] + magnitude[3]))};
}

// The warp's sums; what is left out of the symmetric matrices counts twice where it is found.
template <class Accumulators>
__device__ float2 warp_sums(const Accumulators& x, const Accumulators& y, bool on_diagonal,
                            bool left_half) {
  float2 sum = half_sums<0>(x, y, left_half ? 1.0f : 2.0f);
  if (!left_half) {
    const float2 right = half_sums<1>(x, y, on_diagonal ? 1.0f : 2.0f);
    sum = {sum.x + right.x, sum.y + right.y};
  }
  CUTLASS_PRAGMA_UNROLL
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, lanes);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, lanes);
  }
  return sum;
}

// Squared lengths of rows are what the multiplying unit's sums have, and the products below the
// range of float32 that it has lost. A row of which nothing is left is zero, or lost in the norm,
// too, which the spread makes up for.
__device__ __forceinline__ double with_lost(float square, double lost) {
  return square == 0.0f ? 0.0 : static_cast<double>(square) + lost;
}

// The warp's part of a diagonal tile; `a_lost`, `g_lost`: per row.
template <class Accumulators>
__device__ GhostDiagonal warp_diagonal(const Accumulators& a_gram, const Accumulators& g_gram,
                                       double a_lost, double g_lost, int thread) {
  TiledMma mma;
  const Tensor places =
      mma.get_slice(thread).partition_C(make_identity_tensor(Shape<Int<kTile>, Int<kTile>>{}));
  GhostDiagonal sum;
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < size(a_gram); ++i) {
    if (get<0>(places(i)) != get<1>(places(i))) continue;
    const double a = with_lost(a_gram(i), a_lost), g = with_lost(g_gram(i), g_lost);
    sum.products += a * g;
    sum.a += a;
    sum.g += g;
  }
  CUTLASS_PRAGMA_UNROLL
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    sum.products += __shfl_xor_sync(0xffffffffu, sum.products, lanes);
    sum.a += __shfl_xor_sync(0xffffffffu, sum.a, lanes);
    sum.g += __shfl_xor_sync(0xffffffffu, sum.g, lanes);
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads, 1)
    ghost_norm_sums_sm90_kernel(const __grid_constant__ GhostWork work) {
  extern __shared__ __align__(1024) char memory[];
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(memory);
  const int thread = static_cast<int>(threadIdx.x);
  const bool fetches = thread < 128;
  const int rank = static_cast<int>(block_rank_in_cluster());
  const int cluster = static_cast<int>(blockIdx.x) / 2, clusters = static_cast<int>(gridDim.x) / 2;

  Pipeline::Params params;
  params.role = fetches ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;
  params.is_leader = thread == 0;
  params.num_consumers = kConsumers;
  params.num_producers = 1;
  params.transaction_bytes = kStageBytes;
  Pipeline pipeline(shared.pipeline, params, ClusterShape{});
  // The other block's barriers are signalled from here: they must exist.
  cluster_arrive_relaxed();
  cluster_wait();

  if (fetches) {
    cutlass::arch::warpgroup_reg_dealloc<40>();
    if (thread == 0) {
      PipelineState state = cutlass::make_producer_start_state<Pipeline>();
      for_each_tile(work, cluster, clusters, rank,
                    [&](const GroupWork& group, const GhostTile& tile) {
                      for (int k = 0; k <= group.layers; ++k) {
                        const int map = group.first_map + k;
                        fetch(&work.map[map], columns_of(group, k, work.blocks[map]), tile, rank,
                              pipeline, state, shared);
                      }
                    });
      pipeline.producer_tail(state);
    }
    __syncwarp();
  } else {
    cutlass::arch::warpgroup_reg_alloc<232>();
    const int consumer = thread - 128;
    PipelineState state;
    TiledMma mma;
    Tensor a_gram = partition_fragment_C(mma, Shape<Int<kTile>, Int<kTile>>{});
    Tensor g_gram = make_fragment_like(a_gram);
    const auto half = partition_fragment_C(HalfMma{}, Shape<Int<kTile>, Int<kTile / 2>>{}).layout();
    Tensor a_left = make_tensor(a_gram.data(), half), g_left = make_tensor(g_gram.data(), half);
    const bool first_group = __shfl_sync(0xffffffffu, consumer / 128, 0) == 0;
    for_each_tile(
        work, cluster, clusters, rank, [&](const GroupWork& group, const GhostTile& tile) {
          const bool on_diagonal = tile.row == tile.column;
          const bool left_half = on_diagonal && first_group;
          const auto gram = [&](auto& all, auto& left, int blocks) {
            if (left_half)
              multiply<HalfMma>(left, blocks, consumer, pipeline, state, shared);
            else
              multiply<TiledMma>(all, blocks, consumer, pipeline, state, shared);
          };
          gram(a_gram, a_left, work.blocks[group.first_map]);
          const int64_t tiles = group.grid.tiles();
          for (int k = 0; k < group.layers; ++k) {
            const int map = group.first_map + 1 + k;
            gram(g_gram, g_left, columns_of(group, 1 + k, work.blocks[map]).count);
            const float2 sum = warp_sums(a_gram, g_gram, on_diagonal, left_half);
            const int64_t part =
                (int64_t{k} * group.grid.samples + tile.sample) * group.slices + group.slice;
            if (consumer % 32 == 0 && tile.real) {
              const int64_t slot = part * tiles + tile.slot;
              work.pairs[group.first_pair + slot * kWarps + consumer / 32] = sum;
            }
            if (tile.row != tile.column) continue;
            const auto lost = [&](int map) { return kLostProducts * kDepth * work.blocks[map]; };
            GhostDiagonal diagonal =
                warp_diagonal(a_gram, g_gram, lost(group.first_map), lost(map), consumer);
            if (group.slice > 0) diagonal.a = 0;  // counts once
            if (consumer % 32 == 0 && tile.real) {
              const int64_t slot = part * group.grid.n + tile.row;
              work.diagonals[group.first_diagonal + slot * kWarps + consumer / 32] = diagonal;
            }
          }
        });
  }
  // A block that has left cannot be signalled.
  cluster_arrive();
  cluster_wait();
}

}  // namespace moonshard::kernels::ghost_gram
