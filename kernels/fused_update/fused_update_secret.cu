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

// A thread's sums of kept rows, of all groups of a tile: they wait in shared memory, as the draw
// and the update take all registers.
template <class Acc>
struct TileSums {
  Four<Acc> of_group[4][kTileBlocks];
};

// Before anything else is loaded, and several rows at a time: one row's loads would not keep memory
// busy.
template <Inputs inputs, class Place, class Acc>
__device__ __forceinline__ void sum_rows(const Part<Acc>& part, int64_t first_group, int lane,
                                         TileSums<Acc>& sums) {
  using Gradient = GradientSum<Acc, inputs>;
  constexpr bool kWhole = std::is_same_v<Place, WholeGroup>;
  constexpr int kGroups = kWhole ? 4 : 1,
                kRowsAtOnce = kWhole && inputs == Inputs::FloatRows ? 2 : 4;
#pragma unroll 1
  for (int first = 0; first < 4; first += kGroups) {
    const auto place = [&](int u) {
      return Place(first_group + (first + u) * kTileBlocks, part.first_element, part.count);
    };
    if (!kWhole && place(0).is_empty()) continue;
    Four<Acc> sum[kGroups] = {};
#pragma unroll 1
    for (int b = 0; b < part.num_rows; b += kRowsAtOnce) {
      decltype(Gradient::first) loaded[kRowsAtOnce][kGroups];
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        // Beyond the last row the last one again, for a factor that is not used.
        const int from = min(b + r, part.num_rows - 1);
#pragma unroll
        for (int u = 0; u < kGroups; ++u) loaded[r][u] = Gradient::load_row(part, from, place(u));
      }
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        const float factor = b + r < part.num_rows ? part.row_factors[b + r] : 0.0f;
        if (factor == 0.0f) continue;
#pragma unroll
        for (int u = 0; u < kGroups; ++u) add_scaled(sum[u], factor, as_four<Acc>(loaded[r][u]));
      }
    }
#pragma unroll
    for (int u = 0; u < kGroups; ++u) sums.of_group[first + u][lane] = sum[u];
  }
}

template <class Value, UpdateKind kind, Inputs inputs, class Place, class Acc>
__device__ __forceinline__ void update_tile(const Table<Acc>& table, const Part<Acc>& part,
                                            int64_t tile, int lane, TileSums<Acc>* sums) {
  // Groups in flight: moments and doubles take registers.
  constexpr int kUnroll = !std::is_same_v<Place, WholeGroup>                            ? 1
                          : Moments<Value, kind, Acc>::kNumber == 0 && sizeof(Acc) == 4 ? 4
                                                                                        : 2;
  const int64_t first_group = tile * (kTileElements / 4) + lane;
  const auto block = static_cast<uint64_t>(tile * kTileBlocks + lane);
  bool has_sums = false;
  if constexpr (kHasRows<inputs>) {
    has_sums = part.num_rows > 2;
    if (has_sums) sum_rows<inputs, Place>(part, first_group, lane, *sums);
  }
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
      if (!has_sums) gradient[u].begin(part, lanes);
    }
    if (row == 0) words = noise_words(table.secret_key, block, table.noise_step, part.parameter);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const Place lanes(first_group + (row + u) * kTileBlocks, part.first_element, part.count);
      if (lanes.is_empty()) continue;
      Four<Acc> sum;
      if constexpr (kHasRows<inputs>) {
        sum = has_sums ? sums->of_group[row + u][lane] : gradient[u].sum_of_two(part);
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
  __shared__ TileSums<Acc> sums[kHasRows<inputs> ? kThreads / 32 : 1];
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  TileSums<Acc>* own = &sums[kHasRows<inputs> ? warp : 0];
#pragma unroll 1
  for (int done = warp; done < kTilesPerBlock; done += kThreads / 32) {
    const int64_t tile = first_tile + done;
    const bool whole = part.vectors && tile * kTileElements >= part.first_element &&
                       (tile + 1) * kTileElements <= part.first_element + part.count;
    if (whole) {
      update_tile<Value, kind, inputs, WholeGroup>(table, part, tile, lane, own);
    } else {
      update_tile<Value, kind, inputs, SomeLanes>(table, part, tile, lane, own);
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
