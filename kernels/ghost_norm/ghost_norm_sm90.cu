// Ghost norms on Hopper: what a launch of the kernel needs, and which clusters take which tiles.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "kernels/common/architecture.h"
#include "kernels/ghost_norm/ghost_norm_schedule.h"
#include "kernels/ghost_norm/ghost_norm_sm90.cuh"

namespace moonshard::kernels {
namespace {

using namespace ghost_gram;

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string("ghost_norm: ") + what + " failed: " +
                           cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
}

// The driver's own function, found at run time: the library does not link the driver.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const auto encoder = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                cudaEnableDefault, &result),
               "looking up cuTensorMapEncodeTiled");
    if (result != cudaDriverEntryPointSuccess || found == nullptr) {
      throw std::runtime_error(
          "ghost_norm: expected a driver with cuTensorMapEncodeTiled, got one without; install a "
          "driver for CUDA 12 or newer");
    }
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
  }();
  return encoder;
}

// For copies of so many positions.
CUtensorMap tensor_map(const GhostOperand& x, int64_t tokens, int64_t samples, int positions) {
  // The stride of a dimension of size 1 is never used, and PyTorch leaves anything in it.
  const int64_t fits = (x.width + 7) / 8 * 8;
  const int64_t token_stride = tokens > 1 ? x.token_stride : fits;
  const int64_t sample_stride = samples > 1 ? x.sample_stride : token_stride * tokens;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(x.width), static_cast<cuuint64_t>(tokens),
                               static_cast<cuuint64_t>(samples)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(token_stride) * sizeof(Element),
                                 static_cast<cuuint64_t>(sample_stride) * sizeof(Element)};
  const cuuint32_t box[3] = {kDepth, static_cast<cuuint32_t>(positions), 1}, steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = tensor_map_encoder()(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(x.data), sizes, strides, box,
      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw std::runtime_error(
        "ghost_norm: cuTensorMapEncodeTiled refused a tensor [" + std::to_string(samples) + ", " +
        std::to_string(tokens) + ", " + std::to_string(x.width) + "] of strides " +
        std::to_string(sample_stride) + ", " + std::to_string(token_stride) + " (code " +
        std::to_string(static_cast<int>(result)) +
        "); expected a 16-byte aligned start and strides that are multiples of 8");
  }
  return map;
}

// Clusters that run at the same time on the current device.
int resident_clusters() {
  constexpr int kMostDevices = 64;
  static std::atomic<int> known[kMostDevices];
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  if (device < kMostDevices && known[device].load() > 0) return known[device].load();
  check_cuda(
      cudaFuncSetAttribute(ghost_norm_sums_sm90_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(sizeof(SharedStorage))),
      "asking for shared memory");
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(2);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = sizeof(SharedStorage);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check_cuda(cudaOccupancyMaxActiveClusters(&clusters, ghost_norm_sums_sm90_kernel, &config),
             "counting clusters");
  clusters = std::clamp(clusters, 1, kMostClusters);
  if (device < kMostDevices) known[device].store(clusters);
  return clusters;
}

int64_t blocks_of(const GhostOperand& x) {
  return (x.width + kDepth - 1) / kDepth;
}

int64_t cost_of(const GhostGroupView& group, int slices = 1) {
  int64_t cost = blocks_of(group.a);
  for (const GhostOperand& g : group.g) cost += (blocks_of(g) + slices - 1) / slices;
  return cost;
}

GhostTileGrid grid_of(const GhostGroupView& group, int64_t samples) {
  return {static_cast<int>(samples), static_cast<int>((group.tokens + kTile - 1) / kTile)};
}

// Slices of g's columns in a launch of these groups: only a layer by itself is cut.
int slices_of(const std::vector<const GhostGroupView*>& groups, int64_t samples) {
  return groups.size() > 1 ? 1 : ghost_norm_sm90_slices(*groups.front(), samples);
}

// What one layer of a group leaves for one sample.
struct PartialCounts {
  int64_t pairs, diagonals;

  int64_t bytes() const {
    return pairs * static_cast<int64_t>(sizeof(float2)) +
           diagonals * static_cast<int64_t>(sizeof(GhostDiagonal));
  }
};

PartialCounts partials_of(const GhostGroupView& group, int64_t samples, int slices) {
  const GhostTileGrid grid = grid_of(group, samples);
  return {int64_t{grid.tiles()} * slices * kWarps, int64_t{grid.n} * slices * kWarps};
}

// Bytes of a launch, for all samples.
int64_t workspace_of(const std::vector<const GhostGroupView*>& groups, int64_t samples) {
  const int slices = slices_of(groups, samples);
  int64_t bytes = 0;
  for (const GhostGroupView* group : groups)
    bytes += static_cast<int64_t>(group->g.size()) * samples *
             partials_of(*group, samples, slices).bytes();
  return bytes;
}

void launch_groups(const std::vector<const GhostGroupView*>& groups, int64_t samples,
                   const GhostResults& results, unsigned char* workspace, void* stream) {
  GhostWork work{};
  std::vector<GhostPartials> partials;
  std::vector<int64_t> costs, counts;
  const int slices = slices_of(groups, samples);
  int maps = 0;
  int64_t next_pair = 0, next_diagonal = 0;
  for (const GhostGroupView* group : groups)
    next_pair += static_cast<int64_t>(group->g.size()) * samples *
                 partials_of(*group, samples, slices).pairs;
  auto* pairs = reinterpret_cast<float2*>(workspace);
  auto* diagonals = reinterpret_cast<GhostDiagonal*>(pairs + next_pair);  // behind all pairs
  next_pair = 0;
  for (const GhostGroupView* group : groups) {
    GroupWork entry;
    entry.grid = grid_of(*group, samples);
    entry.first_map = maps;
    entry.layers = static_cast<int>(group->g.size());
    entry.slices = slices;
    entry.first_pair = next_pair;
    entry.first_diagonal = next_diagonal;
    for (int part = 0; part < slices; ++part) {
      entry.slice = part;
      entry.first_item = work.items;
      work.group[work.groups++] = entry;
      work.items += entry.grid.items();
      costs.push_back(cost_of(*group, slices));
      counts.push_back(entry.grid.items());
    }
    const auto add_map = [&](const GhostOperand& x) {
      work.map[maps] = tensor_map(x, group->tokens, samples, kBox);
      work.map[kMostMaps + maps] = tensor_map(x, group->tokens, samples, kTile);
      work.blocks[maps++] = static_cast<int>(blocks_of(x));
    };
    add_map(group->a);
    const PartialCounts of_sample = partials_of(*group, samples, slices);
    for (size_t k = 0; k < group->g.size(); ++k) {
      add_map(group->g[k]);
      partials.push_back({reinterpret_cast<const float*>(pairs + next_pair), of_sample.pairs,
                          group->rows[k], cut_off_gain(group->a.width + group->g[k].width),
                          diagonals + next_diagonal, of_sample.diagonals, group->tokens});
      next_pair += of_sample.pairs * samples;
      next_diagonal += of_sample.diagonals * samples;
    }
  }
  work.pairs = pairs;
  work.diagonals = diagonals;
  const int clusters = std::min(resident_clusters(), work.items);
  work.listed = work.items <= kMostListed;
  if (work.listed) {
    const auto schedule = ghost_schedule(costs, counts, clusters);
    std::copy(schedule->first.begin(), schedule->first.end(), work.first);
    std::copy(schedule->items.begin(), schedule->items.end(), work.item);
  }

  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(2 * clusters));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = sizeof(SharedStorage);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  check_cuda(cudaLaunchKernelEx(&config, ghost_norm_sums_sm90_kernel, work), "launch");
  check_launch("ghost_norm");
  launch_ghost_norm_reduce(partials, samples, results, stream);
}

}  // namespace

int ghost_norm_sm90_slices(const GhostGroupView& group, int64_t samples) {
  if (group.g.size() > 1) return 1;
  return ghost_slices(grid_of(group, samples).items(), blocks_of(group.a),
                      blocks_of(group.g.front()), resident_clusters());
}

int64_t ghost_norm_sm90_workspace_bytes(const std::vector<GhostGroupView>& groups,
                                        int64_t samples) {
  int64_t bytes = 0;
  for (const auto& batch : ghost_batches(groups, kMostGroups, kMostMaps))
    bytes += workspace_of(batch, samples);
  return bytes;
}

void launch_ghost_norm_sm90(const std::vector<GhostGroupView>& groups, int64_t samples,
                            const GhostResults& results, void* workspace, void* stream) {
  auto* room = static_cast<unsigned char*>(workspace);
  for (auto& batch : ghost_batches(groups, kMostGroups, kMostMaps)) {
    // Longest first, so that the last to end are short.
    std::stable_sort(batch.begin(), batch.end(),
                     [](auto* x, auto* y) { return cost_of(*x) > cost_of(*y); });
    launch_groups(batch, samples, results, room, stream);
    room += workspace_of(batch, samples);
  }
}

}  // namespace moonshard::kernels
