// The update with reproducible noise, or none. A thread takes groups of four elements, those of one
// Philox counter, and issues two groups' loads before it draws their noise, so that drawing
// overlaps with memory.
#include "kernels/counter_noise/counter_noise_math.h"
#include "kernels/fused_update/fused_update_launchers.cuh"

namespace moonshard::kernels {
namespace {

constexpr int kGroupsPerThread = 8;
constexpr int64_t kGroupsPerBlock = kThreads * kGroupsPerThread;

template <class Value, UpdateKind kind, Inputs inputs, class Place, class Acc>
__device__ __forceinline__ void update_groups(const Table<Acc>& table, const Part<Acc>& part,
                                              int64_t first_group) {
  constexpr int kUnroll = Place::kUnroll;
#pragma unroll 1
  for (int done = 0; done < kGroupsPerThread; done += kUnroll) {
    const int64_t from = first_group + static_cast<int64_t>(done) * kThreads;
    Values<Value> value[kUnroll];
    Moments<Value, kind, Acc> moments[kUnroll];
    GradientSum<Acc, inputs> gradient[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const Place lanes(from + u * kThreads, part.first_element, part.count);
      if (lanes.is_empty()) return;
      if constexpr (kind != UpdateKind::Replace) value[u].begin(part, lanes);
      moments[u].begin(part, lanes);
      gradient[u].begin(part, lanes);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const Place lanes(from + u * kThreads, part.first_element, part.count);
      FourNormals normals{};
      if (table.draws) {
        normals = four_normals(static_cast<uint64_t>(from + u * kThreads), table.noise_step,
                               part.parameter, table.noise_key);
      }
      const Four<Acc> sum = gradient[u].finish(part, lanes);
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const Acc g =
            sum.number[lane] * table.scale + table.noise * static_cast<Acc>(normals.value[lane]);
        const Acc before = kind == UpdateKind::Replace ? Acc(0) : value[u].template get<Acc>(lane);
        value[u].set(lane, moments[u].update(lane, before, g, part, table));
      }
      value[u].end(part, lanes);
      moments[u].end(part, lanes);
    }
  }
}

template <class Value, UpdateKind kind, Inputs inputs, class Acc>
__global__ void __launch_bounds__(kThreads)
    fused_update_kernel(const __grid_constant__ Table<Acc> table) {
  const Part<Acc>& part = part_of_block(table);
  const int64_t first_group =
      part.first_element / 4 +
      (static_cast<int64_t>(blockIdx.x) - part.first_block) * kGroupsPerBlock;
  const bool whole =
      part.vectors && (first_group + kGroupsPerBlock) * 4 <= part.first_element + part.count;
  if (whole) {
    update_groups<Value, kind, inputs, WholeGroup>(table, part, first_group + threadIdx.x);
  } else {
    update_groups<Value, kind, inputs, SomeLanes>(table, part, first_group + threadIdx.x);
  }
}

struct CounterKernels {
  static constexpr bool kReplaces = true, kAllRows = true;
  static constexpr int64_t kAligned = 4, kVector = 4, kElementsPerBlock = 4 * kGroupsPerBlock;
  template <class Value, UpdateKind kind, Inputs inputs, class Acc>
  static void run(const Table<Acc>& table, int blocks, cudaStream_t stream) {
    fused_update_kernel<Value, kind, inputs, Acc><<<blocks, kThreads, 0, stream>>>(table);
  }
};

}  // namespace

void launch_fused_update(const RawUpdatePart* parts, int num_parts, const RawUpdateRule& rule,
                         void* cuda_stream) {
  if (rule.is_secret && rule.noise_std != 0) {
    launch_fused_update_secret(parts, num_parts, rule, cuda_stream);
  } else {
    launch_all<CounterKernels>(parts, num_parts, rule, cuda_stream);
  }
}

}  // namespace moonshard::kernels
