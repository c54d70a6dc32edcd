// The update with noise under a secret key. A warp takes tiles of 512 elements; a thread four
// groups of four elements of one, whose noise is one ChaCha block.
#include "kernels/fused_update/fused_update_launchers.cuh"
#include "kernels/fused_update/fused_update_stream.cuh"

namespace moonshard::kernels {
namespace {

constexpr int kWarps = kThreads / 32, kTilesPerWarp = 2, kTilesPerBlock = kWarps * kTilesPerWarp;

// Whether whole tiles pass through shared memory: the inputs that people wait for.
template <Inputs inputs>
constexpr bool kStreams =
    inputs == Inputs::Grad || inputs == Inputs::HalfRows || inputs == Inputs::FloatRows;

// Noise of all groups of a thread in a tile, in units of the grid.
template <class Acc>
class TileNoise {
 public:
  __device__ __forceinline__ TileNoise(const Table<Acc>& table, const Part<Acc>& part, int64_t tile,
                                       int lane)
      : size_(static_cast<float>(table.noise)) {
    const auto block = static_cast<uint64_t>(tile * kTileBlocks + lane);
    const ChaChaWords words =
        noise_words(table.secret_key, block, table.noise_step, part.parameter);
    uint32_t smallest = words.word[0];
#pragma unroll
    for (int pair = 0; pair < 8; ++pair) {
      smallest = min(smallest, words.word[2 * pair]);
      radius_[pair] = noise_radius(words.word[2 * pair]);
      angle_[pair] = words.word[2 * pair + 1];
    }
    if (smallest >= kTailWord) return;  // one thread in 8,192 goes on
#pragma unroll
    for (int pair = 0; pair < 8; ++pair)
      if (words.word[2 * pair] < kTailWord)
        radius_[pair] = tail_radius(words.word[2 * pair], table.secret_key, block, table.noise_step,
                                    part.parameter, 2 * pair);
  }

  // Sum and noise with one rounding, then to a whole number.
  __device__ __forceinline__ void add_to(Four<Acc>& sum, int group) const {
#pragma unroll
    for (int even = 0; even < 4; even += 2) {
      const int pair = 2 * group + even / 2;
      const auto radius = static_cast<Acc>(size_ * radius_[pair]);
      const SineCosine angle = noise_turn(angle_[pair]);
      sum.number[even] = whole(fma(radius, static_cast<Acc>(angle.cosine), sum.number[even]));
      sum.number[even + 1] = whole(fma(radius, static_cast<Acc>(angle.sine), sum.number[even + 1]));
    }
  }

 private:
  __device__ __forceinline__ static float whole(float x) {
    return rintf(x);
  }
  __device__ __forceinline__ static double whole(double x) {
    return rint(x);
  }

  float size_;
  float radius_[8];
  uint32_t angle_[8];
};

template <class Value, UpdateKind kind, class Place, class Acc>
__device__ __forceinline__ void update_group(const Table<Acc>& table, const Part<Acc>& part,
                                             const Place& lanes, const Four<Acc>& sum,
                                             Values<Value>& value,
                                             Moments<Value, kind, Acc>& moments) {
#pragma unroll
  for (int j = 0; j < 4; ++j)
    value.set(
        j, moments.update(j, value.template get<Acc>(j), sum.number[j] * table.scale, part, table));
  value.end(part, lanes);
  moments.end(part, lanes);
}

template <class Value, UpdateKind kind, Inputs inputs>
__device__ __forceinline__ void update_streamed(const Table<float>& table, const Part<float>& part,
                                                TileStream<Value, kind, inputs>& stream, int lane) {
#pragma unroll 1
  for (; !stream.is_at_end(); stream.go_on()) {
    const TileNoise<float> noise(table, part, stream.tile(), lane);
    Four<float> sum[4];
    stream.sum_rows(sum);
    stream.wait_for_values();
    const int64_t at = stream.tile() * kTileElements + 4 * lane - part.first_element;
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      Values<Value> value = stream.value(u);
      Moments<Value, kind, float> moments = stream.moments(u);
      noise.add_to(sum[u], u);
      const WholeGroup lanes(at + u * kTileRow);
      update_group(table, part, lanes, sum[u], value, moments);
    }
  }
}

// Without shared memory: the ends of parts, addresses that allow no vectors, other inputs. Other
// warps' loads are under way while this one draws.
template <class Value, UpdateKind kind, Inputs inputs, class Place, class Acc>
__device__ __forceinline__ void update_tile(const Table<Acc>& table, const Part<Acc>& part,
                                            int64_t tile, int lane) {
  const int64_t first_group = tile * (kTileElements / 4) + lane;
  const TileNoise<Acc> noise(table, part, tile, lane);
#pragma unroll
  for (int u = 0; u < 4; ++u) {
    const Place lanes(first_group + u * kTileBlocks, part.first_element, part.count);
    if (lanes.is_empty()) continue;
    Values<Value> value;
    Moments<Value, kind, Acc> moments;
    GradientSum<Acc, inputs> gradient;
    value.begin(part, lanes);
    moments.begin(part, lanes);
    gradient.begin(part, lanes);
    Four<Acc> sum = gradient.finish(part, lanes);
#pragma unroll
    for (Acc& number : sum.number) number *= table.inverse_grid;
    noise.add_to(sum, u);
    update_group(table, part, lanes, sum, value, moments);
  }
}

template <class Value, UpdateKind kind, Inputs inputs, class Acc>
__global__ void __launch_bounds__(kThreads, 2)
    fused_update_secret_kernel(const __grid_constant__ Table<Acc> table) {
  const Part<Acc>& part = part_of_block(table);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int64_t part_end = part.first_element + part.count;
  const int64_t first = part.first_element / kTileElements +
                        (static_cast<int64_t>(blockIdx.x) - part.first_block) * kTilesPerBlock;
  const int64_t end = min(first + kTilesPerBlock, (part_end + kTileElements - 1) / kTileElements);
  // Those of them that are the part's in whole: all but the part's first and last, or all.
  int64_t first_whole = end, end_whole = end;
  if (part.vectors) {
    first_whole = max(first, (part.first_element + kTileElements - 1) / kTileElements);
    end_whole = min(end, part_end / kTileElements);
  }
  if constexpr (kStreams<inputs>) {
    extern __shared__ __align__(16) char shared[];
    auto* memory = reinterpret_cast<StreamMemory<Value, kind, inputs>*>(shared);
    if (first_whole + warp < end_whole) {
      TileStream<Value, kind, inputs> stream(memory[warp], table, part, first_whole + warp, kWarps,
                                             end_whole, lane);
      update_streamed(table, part, stream, lane);
    }
  } else {
#pragma unroll 1
    for (int64_t tile = first_whole + warp; tile < end_whole; tile += kWarps)
      update_tile<Value, kind, inputs, WholeGroup>(table, part, tile, lane);
  }
#pragma unroll 1
  for (int64_t tile = first + warp; tile < end; tile += kWarps)
    if (tile < first_whole || tile >= end_whole)
      update_tile<Value, kind, inputs, SomeLanes>(table, part, tile, lane);
}

struct SecretKernels {
  // Nothing is trained by replacing, and nothing noised. Kept rows are in float16 or float32.
  static constexpr bool kReplaces = false, kAllRows = false;
  static constexpr int64_t kAligned = kTileElements, kVector = 8,
                           kElementsPerBlock = kTilesPerBlock * kTileElements;
  template <class Value, UpdateKind kind, Inputs inputs, class Acc>
  static void run(const Table<Acc>& table, int blocks, cudaStream_t stream) {
    const auto kernel = fused_update_secret_kernel<Value, kind, inputs, Acc>;
    int shared_bytes = 0;
    if constexpr (kStreams<inputs>) {
      shared_bytes = kWarps * static_cast<int>(sizeof(StreamMemory<Value, kind, inputs>));
      // An error of it is the launch's, too.
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    }
    kernel<<<blocks, kThreads, shared_bytes, stream>>>(table);
  }
};

}  // namespace

void launch_fused_update_secret(const RawUpdatePart* parts, int num_parts,
                                const RawUpdateRule& rule, void* cuda_stream) {
  launch_all<SecretKernels>(parts, num_parts, rule, cuda_stream);
}

}  // namespace moonshard::kernels
