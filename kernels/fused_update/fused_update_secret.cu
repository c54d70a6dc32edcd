// The update with noise under a secret key. A warp takes tiles of 512 elements; a thread four
// groups of four elements of one, whose noise is one ChaCha block. It issues the groups' loads
// before it draws, so that drawing overlaps with memory.
#include "kernels/fused_update/fused_update_launchers.cuh"

namespace moonshard::kernels {
namespace {

constexpr int kTilesPerBlock = 2 * kThreads / 32;

// Whether the gradient is a sum of rows that were kept.
template <Inputs inputs>
constexpr bool kHasRows =
    inputs == Inputs::HalfRows || inputs == Inputs::Bfloat16Rows || inputs == Inputs::FloatRows;

// Sum and noise with one rounding, then the grid.
template <class Acc>
__device__ __forceinline__ Acc noised(Acc sum, Acc radius, float factor, const Table<Acc>& table) {
  return on_grid(fma(radius, static_cast<Acc>(factor), sum), table.grid, table.inverse_grid);
}

template <class Value, UpdateKind kind, Inputs inputs, class Place, class Acc>
__device__ __forceinline__ void update_tile(const Table<Acc>& table, const Part<Acc>& part,
                                            int64_t tile, int lane) {
  // Groups in flight: moments and doubles take registers.
  constexpr int kUnroll = !std::is_same_v<Place, WholeGroup>                            ? 1
                          : Moments<Value, kind, Acc>::kNumber == 0 && sizeof(Acc) == 4 ? 4
                                                                                        : 2;
  const int64_t first_group = tile * (kTileElements / 4) + lane;
  const auto block = static_cast<uint64_t>(tile * kTileBlocks + lane);
  ChaChaWords words;
#pragma unroll
  for (int row = 0; row < 4; row += kUnroll) {
    Values<Value> value[kUnroll];
    Moments<Value, kind, Acc> moments[kUnroll];
    GradientSum<Acc, inputs> gradient[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const Place lanes(first_group + (row + u) * kTileBlocks, part.first_element, part.count);
      if (lanes.is_empty()) continue;
      value[u].begin(part, lanes);
      moments[u].begin(part, lanes);
      gradient[u].begin(part, lanes);
    }
    Four<Acc> sums[kUnroll];
    if constexpr (kHasRows<inputs>) {
      // Further rows group by group would each wait for memory after the draw.
      if (part.num_rows > 2) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) sums[u] = gradient[u].sum_of_two(part);
#pragma unroll 2
        for (int b = 2; b < part.num_rows; ++b) {
#pragma unroll
          for (int u = 0; u < kUnroll; ++u) {
            const Place lanes(first_group + (row + u) * kTileBlocks, part.first_element,
                              part.count);
            if (lanes.is_empty()) continue;
            add_row(sums[u], part.row_factors[b],
                    as_four<Acc>(gradient[u].load_row(part, b, lanes)));
          }
        }
      }
    }
    if (row == 0) words = noise_words(table.secret_key, block, table.noise_step, part.parameter);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const Place lanes(first_group + (row + u) * kTileBlocks, part.first_element, part.count);
      if (lanes.is_empty()) continue;
      Four<Acc> sum;
      if constexpr (kHasRows<inputs>) {
        sum = part.num_rows > 2 ? sums[u] : gradient[u].sum_of_two(part);
      } else {
        sum = gradient[u].finish(part, lanes);
      }
#pragma unroll
      for (int even = 0; even < 4; even += 2) {
        const int word = 4 * (row + u) + even;
        const NormalPair pair = noise_pair(words.word[word], words.word[word + 1], table.secret_key,
                                           block, table.noise_step, part.parameter, word);
        const auto radius = static_cast<Acc>(static_cast<float>(table.noise) * pair.radius);
        sum.number[even] = noised(sum.number[even], radius, pair.cosine, table);
        sum.number[even + 1] = noised(sum.number[even + 1], radius, pair.sine, table);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j)
        value[u].set(j, moments[u].update(j, value[u].template get<Acc>(j),
                                          sum.number[j] * table.scale, part, table));
      value[u].end(part, lanes);
      moments[u].end(part, lanes);
    }
  }
}

template <class Value, UpdateKind kind, Inputs inputs, class Acc>
__global__ void __launch_bounds__(kThreads)
    fused_update_secret_kernel(const __grid_constant__ Table<Acc> table) {
  const Part<Acc>& part = part_of_block(table);
  const int64_t first_tile = part.first_element / kTileElements +
                             (static_cast<int64_t>(blockIdx.x) - part.first_block) * kTilesPerBlock;
  const bool whole =
      part.vectors && first_tile * kTileElements >= part.first_element &&
      (first_tile + kTilesPerBlock) * kTileElements <= part.first_element + part.count;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
  for (int done = warp; done < kTilesPerBlock; done += kThreads / 32) {
    if (whole) {
      update_tile<Value, kind, inputs, WholeGroup>(table, part, first_tile + done, lane);
    } else {
      update_tile<Value, kind, inputs, SomeLanes>(table, part, first_tile + done, lane);
    }
  }
}

struct SecretKernels {
  // Nothing is trained by replacing, and nothing noised. Kept rows are in float16 or float32.
  static constexpr bool kReplaces = false, kAllRows = false;
  static constexpr int64_t kAligned = kTileElements,
                           kElementsPerBlock = kTilesPerBlock * kTileElements;
  template <class Value, UpdateKind kind, Inputs inputs, class Acc>
  static void run(const Table<Acc>& table, int blocks, cudaStream_t stream) {
    fused_update_secret_kernel<Value, kind, inputs, Acc><<<blocks, kThreads, 0, stream>>>(table);
  }
};

}  // namespace

void launch_fused_update_secret(const RawUpdatePart* parts, int num_parts,
                                const RawUpdateRule& rule, void* cuda_stream) {
  launch_all<SecretKernels>(parts, num_parts, rule, cuda_stream);
}

}  // namespace moonshard::kernels
