// The skeleton of the per-sample gradient kernels on Hopper: g_b^T a_b in bfloat16 with float32
// accumulators, tile after tile over a list of layers, in one persistent launch.
//
// A block is one warp that loads (the copy engine, 3-D tensors of width x positions x samples, so
// that what lies outside a sample comes as zeros, which add nothing) and two groups of 128 threads
// that multiply. Two blocks form a cluster, along o or i, and share what both need. Tiles are
// numbered through all problems; cluster c takes the tiles c, c + clusters, ...
//
// What differs is an Operation:
//   using Shape;                      tiles and schedule, below
//   struct Problem : TiledProblem<Shape>;
//   struct Params { Problem problem[]; int num_problems, num_tiles; ... };
//   struct Shared;                    its shared memory
//   prepare(params, shared)           all threads, once, before the first tile
//   Segments(params, shared, work)    the pieces of the sum of a tile: count, at(index), k_tiles()
//   Operation(params, shared, work)   of one multiplying thread and one tile:
//     enter(accumulators, segment)    between two pieces; true when the sum starts at zero
//     finish(accumulators, segments)  stores
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cutlass/numeric_types.h>
#include <cutlass/cluster_launch.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/pipeline/pipeline.hpp>

#include "kernels/common/sample_operands.h"

namespace moonshard::kernels::sample_gemm {

constexpr int kMostProblems = 16;  // per launch: their descriptors are kernel parameters
constexpr int kThreads = 384;
constexpr int kGroupThreads = 128;
constexpr int kClusterBlocks = 2;

template <GemmSchedule kSchedule>
struct Shape {
  static constexpr bool kPingPong = kSchedule == GemmSchedule::PingPong;
  static constexpr bool kNarrow = kSchedule == GemmSchedule::Narrow;
  static constexpr int kTileO = kPingPong ? 64 : 128;
  static constexpr int kTileI = kNarrow ? 192 : 256;
  static constexpr int kTileT = 64;
  static constexpr int kStages = kPingPong || kNarrow ? 5 : 4;  // of 227 KiB, with 16 to spare
  static constexpr int kTileThreads = kPingPong ? kGroupThreads : 2 * kGroupThreads;
  static constexpr int kTileWarps = kTileThreads / 32;
  static constexpr int kBlocksO = kNarrow ? 1 : kClusterBlocks;  // of a cluster
  static constexpr int kBlocksI = kClusterBlocks / kBlocksO;
  static constexpr int kClusterO = kBlocksO * kTileO, kClusterI = kBlocksI * kTileI;
  static constexpr int kBand = 2048 / kClusterO;  // cluster tiles: what runs at once is near square

  /// Sums that a thread holds of a 64 x kTileI piece. Operations see one layout: value 4 j + 2 h +
  /// e is row 8 h + lane / 4 of its warp's 16 rows, column 8 j + 2 (lane % 4) + e.
  static constexpr int kValues = kTileI / 2;

  using Element = cutlass::bfloat16_t;
  using Tile = cute::Shape<cute::Int<kTileO>, cute::Int<kTileI>, cute::Int<kTileT>>;
  using Cluster = cute::Shape<cute::Int<kBlocksO>, cute::Int<kBlocksI>, cute::_1>;
  using Policy = std::conditional_t<kPingPong, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                                    cutlass::gemm::KernelTmaWarpSpecializedCooperative>;
  // Positions are what is summed over and widths are contiguous: both operands are "MN-major".
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::ColumnMajor, 8,
      Element, cutlass::layout::RowMajor, 8, float, Tile, Cluster,
      cutlass::gemm::collective::StageCount<kStages>, Policy>::CollectiveOp;
};

template <class Shape>
struct TiledProblem {
  typename Shape::Mainloop::Params operands;
  int o, i, positions, samples;
  int k_tiles;           // of one sample
  int tiles_o, tiles_i;  // cluster tiles
  int first_tile;        // cluster tiles of the problems before

  __device__ __host__ int tiles_per_slice() const { return tiles_o * tiles_i; }
};

/// One tile of one slice: what a slice is (a sample, a part of the sum) is the operation's.
struct Work {
  int tile;  // number in the launch
  int problem, slice;
  int row, column;  // of this block's first element
};

/// Positions [64 first, 64 (first + count)) of a sample.
struct Segment {
  int sample, first, count;
};

/// This thread's place in the block's tile.
template <class Shape>
__device__ __forceinline__ int thread_in_tile() {
  return Shape::kPingPong ? threadIdx.x % kGroupThreads : threadIdx.x - kGroupThreads;
}

template <class Shape>
__device__ __forceinline__ int warp_in_tile() {
  return thread_in_tile<Shape>() / 32;
}

/// Row within the block's tile of the thread's values with h = 0: 16 rows per warp.
template <class Shape>
__device__ __forceinline__ int thread_row() {
  return warp_in_tile<Shape>() * 16 + threadIdx.x % 32 / 4;
}

template <class Shape, class Params>
__device__ __forceinline__ Work locate(const Params& params, int tile) {
  int problem = 0;
  while (problem + 1 < params.num_problems && tile >= params.problem[problem + 1].first_tile)
    ++problem;
  const auto& p = params.problem[problem];
  const int per_slice = p.tiles_per_slice();
  const int within = tile - p.first_tile;
  const int slice = within / per_slice;
  // Bands of kBand rows of tiles, column after column: neighbours share operands in L2.
  int rest = within - slice * per_slice;
  const int band = rest / (Shape::kBand * p.tiles_i);
  rest -= band * Shape::kBand * p.tiles_i;
  const int first_row = band * Shape::kBand;
  const int rows = min(Shape::kBand, p.tiles_o - first_row);
  const int column = rest / rows, row = first_row + rest - column * rows;
  const int rank = static_cast<int>(cute::block_rank_in_cluster());
  return {tile, problem, slice, row * Shape::kClusterO + rank % Shape::kBlocksO * Shape::kTileO,
          column * Shape::kClusterI + rank / Shape::kBlocksO * Shape::kTileI};
}

/// What CollectiveMma::load asks for its walk over the positions.
struct PositionTile {
  int index;
  __device__ __forceinline__ int operator*() const { return index; }
  __device__ __forceinline__ PositionTile& operator++() {
    ++index;
    return *this;
  }
};

/// Multiplies `count` >= 1 tiles into the accumulators. The last product is still in flight when it
/// returns; drain() waits for it and frees its stage.
template <class Shape, class Accumulators>
__device__ __forceinline__ typename Shape::Mainloop::PipelineState multiply(
    typename Shape::Mainloop::MainloopPipeline& pipeline,
    typename Shape::Mainloop::PipelineState& state, Accumulators& accumulators, int count,
    bool from_zero, typename Shape::Mainloop::TensorStorage& tensors) {
  using namespace cute;
  using Mainloop = typename Shape::Mainloop;
  const Tensor g =
      make_tensor(make_smem_ptr(tensors.smem_A.data()), typename Mainloop::SmemLayoutA{});
  const Tensor a =
      make_tensor(make_smem_ptr(tensors.smem_B.data()), typename Mainloop::SmemLayoutB{});
  typename Mainloop::TiledMma mma;
  const int group = __shfl_sync(0xffffffffu, thread_in_tile<Shape>() / kGroupThreads, 0);
  auto slice = mma.get_slice(group * kGroupThreads);
  const Tensor g_fragment = slice.make_fragment_A(slice.partition_A(g));
  const Tensor a_fragment = slice.make_fragment_B(slice.partition_B(a));

  auto release = state;
  warpgroup_fence_operand(accumulators);
  mma.accumulate_ = from_zero ? GMMA::ScaleOut::Zero : GMMA::ScaleOut::One;
  pipeline.consumer_wait(state, pipeline.consumer_try_wait(state));
  warpgroup_arrive();
  CUTLASS_PRAGMA_UNROLL
  for (int k = 0; k < size<2>(g_fragment); ++k) {
    cute::gemm(mma, g_fragment(_, _, k, state.index()), a_fragment(_, _, k, state.index()),
               accumulators);
    mma.accumulate_ = GMMA::ScaleOut::One;
  }
  warpgroup_commit_batch();
  ++state;
  warpgroup_fence_operand(accumulators);

  CUTLASS_PRAGMA_NO_UNROLL
  for (int left = count - 1; left > 0; --left) {
    pipeline.consumer_wait(state, pipeline.consumer_try_wait(state));
    warpgroup_fence_operand(accumulators);
    warpgroup_arrive();
    cute::gemm(mma, g_fragment(_, _, _, state.index()), a_fragment(_, _, _, state.index()),
               accumulators);
    warpgroup_commit_batch();
    warpgroup_wait<1>();  // the product before is done: its stage may be loaded again
    warpgroup_fence_operand(accumulators);
    pipeline.consumer_release(release);
    ++state;
    ++release;
  }
  return release;
}

template <class Shape, class Accumulators>
__device__ __forceinline__ void drain(typename Shape::Mainloop::MainloopPipeline& pipeline,
                                      const typename Shape::Mainloop::PipelineState& release,
                                      Accumulators& accumulators) {
  cute::warpgroup_wait<0>();
  cute::warpgroup_fence_operand(accumulators);
  pipeline.consumer_release(release);
}

template <class Operation>
struct SharedStorage {
  using Mainloop = typename Operation::Shape::Mainloop;
  using Order = cutlass::OrderedSequenceBarrier<1, 2>;

  alignas(1024) typename Mainloop::TensorStorage tensors;
  alignas(16) typename Mainloop::PipelineStorage pipeline;
  alignas(16) typename Order::SharedStorage order;
  alignas(16) typename Operation::Shared operation;
};

template <class Operation>
__device__ __forceinline__ void load_tiles(
    const typename Operation::Params& params, SharedStorage<Operation>& shared,
    typename Operation::Shape::Mainloop::MainloopPipeline& pipeline, int cluster, int clusters) {
  using Shape = typename Operation::Shape;
  using Mainloop = typename Shape::Mainloop;
  Mainloop mainloop;
  const uint32_t rank = cute::block_rank_in_cluster();
  auto state = cutlass::make_producer_start_state<typename Mainloop::MainloopPipeline>();
  for (int tile = cluster; tile < params.num_tiles; tile += clusters) {
    const Work work = locate<Shape>(params, tile);
    const auto& p = params.problem[work.problem];
    const auto views =
        mainloop.load_init(cute::make_shape(p.o, p.i, p.positions, p.samples), p.operands);
    const typename Operation::Segments segments(params, shared.operation, work);
    for (int index = 0; index < segments.count; ++index) {
      const Segment segment = segments.at(index);
      const auto where = cute::make_coord(work.row / Shape::kTileO, work.column / Shape::kTileI,
                                          cute::_, segment.sample);
      mainloop.load(p.operands, pipeline, state, views, where, PositionTile{segment.first},
                    segment.count, threadIdx.x, rank, shared.tensors);
      state.advance(segment.count);
    }
  }
  mainloop.load_tail(pipeline, state);
}

template <class Operation>
__device__ __forceinline__ void multiply_tiles(
    const typename Operation::Params& params, SharedStorage<Operation>& shared,
    typename Operation::Shape::Mainloop::MainloopPipeline& pipeline,
    typename SharedStorage<Operation>::Order& order, int cluster, int clusters) {
  using namespace cute;
  using Shape = typename Operation::Shape;
  using Segments = typename Operation::Segments;
  typename Shape::Mainloop::PipelineState state;
  typename Shape::Mainloop::TiledMma mma;
  Tensor accumulators = partition_fragment_C(mma, take<0, 2>(typename Shape::Tile{}));
  static_assert(decltype(size(accumulators))::value == Shape::kValues);

  // Ping-pong: the groups take turns. The stages of the other's tile are stepped over.
  const auto skip = [&](int tile) {
    if (tile < params.num_tiles) {
      const Segments other(params, shared.operation, locate<Shape>(params, tile));
      state.advance(other.k_tiles());
    }
  };
  int tile = cluster;
  if (Shape::kPingPong && threadIdx.x >= 2 * kGroupThreads) {
    skip(tile);
    tile += clusters;
  }
  const int step = Shape::kPingPong ? 2 * clusters : clusters;
  for (; tile < params.num_tiles; tile += step) {
    const Work work = locate<Shape>(params, tile);
    const Segments segments(params, shared.operation, work);
    Operation operation(params, shared.operation, work);
    // Not for speed alone: a stage's barrier tells phases apart by one bit, so a group must not
    // look at a stage before the other has passed it.
    if constexpr (Shape::kPingPong) order.wait();
    if (Shape::kPingPong && segments.count == 0) order.arrive();
    for (int index = 0; index < segments.count; ++index) {
      const bool from_zero = index == 0 || operation.enter(accumulators, index);
      const auto release = multiply<Shape>(pipeline, state, accumulators, segments.at(index).count,
                                           from_zero, shared.tensors);
      // The other group begins while the last product of this one is still in flight.
      if (Shape::kPingPong && index + 1 == segments.count) order.arrive();
      // Here and not later: where the compiler cannot prove that a product is waited for on every
      // path, it waits after each one.
      drain<Shape>(pipeline, release, accumulators);
    }
    operation.finish(accumulators, segments.count);
    if constexpr (Shape::kPingPong) skip(tile + clusters);
  }
}

template <class Operation>
__global__ void __launch_bounds__(kThreads, 1)
    sample_gemm_kernel(const __grid_constant__ typename Operation::Params params) {
  using Shape = typename Operation::Shape;
  using Mainloop = typename Shape::Mainloop;
  using Pipeline = typename Mainloop::MainloopPipeline;
  using Order = typename SharedStorage<Operation>::Order;
  extern __shared__ __align__(1024) char shared_bytes[];
  auto& shared = *reinterpret_cast<SharedStorage<Operation>*>(shared_bytes);

  const int group = cutlass::canonical_warp_group_idx();
  typename Pipeline::Params roles;
  roles.role = group == 0 ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;
  roles.is_leader = threadIdx.x % kGroupThreads == 0;
  roles.num_consumers = Shape::kTileThreads;
  roles.num_producers = 1;
  roles.transaction_bytes = Mainloop::TmaTransactionBytes;
  Pipeline pipeline(shared.pipeline, roles, typename Shape::Cluster{});
  typename Order::Params turn;
  turn.group_id = group - 1;  // the loading group constructs it, too, and never uses it
  turn.group_size = kGroupThreads;
  Order order(shared.order, turn);
  Operation::prepare(params, shared.operation);
  __syncthreads();  // what prepare wrote
  cute::cluster_arrive_relaxed();
  cute::cluster_wait();

  const int cluster = blockIdx.x / Shape::kBlocksO, clusters = gridDim.x / Shape::kBlocksO;
  if (group == 0) {
    cutlass::arch::warpgroup_reg_dealloc<40>();
    if (cutlass::canonical_warp_idx_sync() == 0)
      load_tiles<Operation>(params, shared, pipeline, cluster, clusters);
  } else {
    cutlass::arch::warpgroup_reg_alloc<232>();
    multiply_tiles<Operation>(params, shared, pipeline, order, cluster, clusters);
  }
  // A block must not exit while the other one may still signal into its shared memory.
  cute::cluster_arrive_relaxed();
  cute::cluster_wait();
}

/// Fills the part of a problem that all operations share. Returns the number of the next tile.
template <class Shape>
int describe_problem(TiledProblem<Shape>& problem, const SampleOperands& in, int slices,
                     int first_tile) {
  using Mainloop = typename Shape::Mainloop;
  using Element = typename Shape::Element;
  problem.o = static_cast<int>(in.o);
  problem.i = static_cast<int>(in.i);
  problem.positions = static_cast<int>(in.positions);
  problem.samples = static_cast<int>(in.samples);
  problem.k_tiles = cute::ceil_div(problem.positions, Shape::kTileT);
  problem.tiles_o = cute::ceil_div(problem.o, Shape::kClusterO);
  problem.tiles_i = cute::ceil_div(problem.i, Shape::kClusterI);
  problem.first_tile = first_tile;
  const typename Mainloop::Arguments arguments{static_cast<const Element*>(in.g),
                                               {cute::_1{}, in.g_row, in.g_sample},
                                               static_cast<const Element*>(in.a),
                                               {cute::_1{}, in.a_row, in.a_sample}};
  problem.operands = Mainloop::to_underlying_arguments(
      cute::make_shape(problem.o, problem.i, problem.positions, problem.samples), arguments,
      nullptr);
  return first_tile + slices * problem.tiles_per_slice();
}

/// Cluster tiles of one slice, without making descriptors.
template <class Shape>
int64_t count_tiles(const SampleOperands& in) {
  return cute::ceil_div(in.o, int64_t{Shape::kClusterO}) *
         cute::ceil_div(in.i, int64_t{Shape::kClusterI});
}

/// So many clusters of the kernel. `attribute` must outlive what is returned.
template <class Operation>
cudaLaunchConfig_t launch_config(int clusters, cudaLaunchAttribute& attribute) {
  using Shape = typename Operation::Shape;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {Shape::kBlocksO, Shape::kBlocksI, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(clusters * Shape::kBlocksO, Shape::kBlocksI);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = sizeof(SharedStorage<Operation>);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return config;
}

/// How many clusters of this kernel the current device holds at once.
template <class Operation>
int resident_clusters() {
  constexpr int kMostDevices = 64;
  static std::atomic<int> known[kMostDevices];
  int device = 0;
  cudaGetDevice(&device);
  std::atomic<int>& cached = known[device % kMostDevices];
  int clusters = cached.load(std::memory_order_relaxed);
  if (clusters > 0) return clusters;
  const auto kernel = sample_gemm_kernel<Operation>;
  constexpr int kBytes = sizeof(SharedStorage<Operation>);
  static_assert(kBytes <= 227 * 1024, "the stages and the operation's own shared memory");
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  cudaLaunchAttribute attribute;
  const cudaLaunchConfig_t config = launch_config<Operation>(1, attribute);
  if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess || clusters < 1) {
    cudaGetLastError();
    clusters = 1;  // slow but correct: each cluster loops over the list
  }
  cached.store(clusters, std::memory_order_relaxed);
  return clusters;
}

template <class Operation>
void launch(const typename Operation::Params& params, cudaStream_t stream) {
  const int clusters = std::min(resident_clusters<Operation>(), params.num_tiles);
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config = launch_config<Operation>(clusters, attribute);
  config.stream = stream;
  cudaLaunchKernelEx(&config, sample_gemm_kernel<Operation>, params);
}

}  // namespace moonshard::kernels::sample_gemm
