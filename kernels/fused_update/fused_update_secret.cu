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

// A warp's own shared memory: sums of kept rows of all groups of a tile, which wait there, as the
// draw and the update take all registers, and factors of four rows. Where rows have units, a
// group's 32 lanes lie in one.
template <class Acc>
struct TileSums {
  Four<Acc> of_group[4][kTileBlocks];
  float4 factor[4];  // of a row: for each group

  // The lane's own one of those of four rows: of row lane / 4 and group lane % 4.
  __device__ __forceinline__ static float load_factor(const Part<Acc>& part, int64_t tile, int lane,
                                                      int row) {
    static_assert(kGroupsPerUnit == kTileBlocks);
    constexpr uint32_t kUnits = kTileElements / kUnitElements;
    const int b = row + lane / 4;
    if (lane >= 16 || b >= part.num_rows) return 0.0f;
    // Ends of a parameter may lie within a tile.
    const uint32_t unit =
        min(static_cast<uint32_t>(tile) * kUnits + static_cast<uint32_t>(lane % 4),
            part.units_per_row - 1);
    return part.row_factors[static_cast<uint32_t>(b) * part.units_per_row + unit];
  }
  __device__ __forceinline__ void share_factors(int lane, float own) {
    __syncwarp();  // the ones before have been read
    if (lane < 16) reinterpret_cast<float*>(factor)[lane] = own;
    __syncwarp();
  }
  __device__ __forceinline__ float factor_of(int row, int group) const {
    return reinterpret_cast<const float*>(factor)[4 * row + group];
  }
};

// Before anything else is loaded, and several rows at a time: one row's loads would not keep memory
// busy.
template <Inputs inputs, class Place, class Acc>
__device__ __forceinline__ void sum_rows(const Part<Acc>& part, int64_t tile, int lane,
                                         TileSums<Acc>& sums) {
  using Gradient = GradientSum<Acc, inputs>;
  constexpr bool kWhole = std::is_same_v<Place, WholeGroup>;
  constexpr int kGroups = kWhole ? 4 : 1,
                kRowsAtOnce = kWhole && inputs == Inputs::FloatRows ? 2 : 4;
  const int64_t first_group = tile * (kTileElements / 4) + lane;
#pragma unroll 1
  for (int first = 0; first < 4; first += kGroups) {
    const auto place = [&](int u) {
      return Place(first_group + (first + u) * kTileBlocks, part.first_element, part.count);
    };
    if (!kWhole && place(0).is_empty()) continue;
    Four<Acc> sum[kGroups] = {};
#pragma unroll 1
    for (int b = 0; b < part.num_rows; b += kRowsAtOnce) {
      [[maybe_unused]] float own = 0;
      if constexpr (kWhole) own = TileSums<Acc>::load_factor(part, tile, lane, b);
      decltype(Gradient::first) loaded[kRowsAtOnce][kGroups];
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        // Beyond the last row the last one again, for a factor of 0.
        const int from = min(b + r, part.num_rows - 1);
#pragma unroll
        for (int u = 0; u < kGroups; ++u) loaded[r][u] = Gradient::load_row(part, from, place(u));
      }
      if constexpr (kWhole) sums.share_factors(lane, own);
#pragma unroll
      for (int r = 0; r < kRowsAtOnce; ++r) {
        if constexpr (kWhole) {
          // One comparison for all groups: none of them is counted, or all are, and finite.
          const float4 factor = sums.factor[r];
          if (fmaxf(fmaxf(factor.x, factor.y), fmaxf(factor.z, factor.w)) == 0.0f) continue;
          const float of_group[4] = {factor.x, factor.y, factor.z, factor.w};
#pragma unroll
          for (int u = 0; u < kGroups; ++u)
            add_scaled(sum[u], of_group[u], as_four<Acc>(loaded[r][u]));
        } else if (b + r < part.num_rows) {
          add_row(sum[0], factor_of(part, b + r, place(0).i), as_four<Acc>(loaded[r][0]));
        }
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
  [[maybe_unused]] float own_factor = 0;
  if constexpr (kHasRows<inputs>) {
    has_sums = part.num_rows > 2;
    if (has_sums) {
      sum_rows<inputs, Place>(part, tile, lane, *sums);
    } else {
      own_factor = TileSums<Acc>::load_factor(part, tile, lane, 0);
    }
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
      if constexpr (kHasRows<inputs>) {
        if (!has_sums) gradient[u].begin_rows(part, lanes);
      } else {
        gradient[u].begin(part, lanes);
      }
    }
    if (row == 0) {
      words = noise_words(table.secret_key, block, table.noise_step, part.parameter);
      if constexpr (kHasRows<inputs>) {
        if (!has_sums) sums->share_factors(lane, own_factor);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const Place lanes(first_group + (row + u) * kTileBlocks, part.first_element, part.count);
      if (lanes.is_empty()) continue;
      Four<Acc> sum;
      if constexpr (kHasRows<inputs>) {
        sum = has_sums ? sums->of_group[row + u][lane]
                       : gradient[u].sum_of_two(sums->factor_of(0, row + u),
                                                sums->factor_of(1, row + u));
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
