// A warp's tiles on their way through shared memory: what the next tile needs is copied while noise
// for this one is drawn and its values are updated. Nothing waits in registers, and memory is busy
// all the time.
#pragma once

#include "kernels/common/async_copy.cuh"
#include "kernels/fused_update/fused_update_parts.cuh"

namespace moonshard::kernels {
namespace {

// Numbers of a tile as they lie in memory: four rows of groups, one of each for every lane.
template <class T>
struct alignas(16) TileOf {
  static constexpr int kWords = sizeof(Four<T>) / 4;
  uint32_t word[4][kTileBlocks][kWords];

  __device__ __forceinline__ Four<T> get(int row, int lane) const {
    uint32_t words[kWords];
    if constexpr (kWords == 2) {
      const uint2 got = *reinterpret_cast<const uint2*>(word[row][lane]);
      words[0] = got.x, words[1] = got.y;
    } else {
      static_assert(kWords == 4);
      const uint4 got = *reinterpret_cast<const uint4*>(word[row][lane]);
      words[0] = got.x, words[1] = got.y, words[2] = got.z, words[3] = got.w;
    }
    Four<T> four;
    memcpy(&four, words, sizeof four);
    return four;
  }
  // `base` is the part's first element, the tile begins `at` elements from there.
  __device__ __forceinline__ void copy(const void* base, int64_t at, int lane) {
    copy_by_warp<sizeof(TileOf)>(shared_address(this) + 16 * lane,
                                 static_cast<const T*>(base) + at + lane * (16 / sizeof(T)));
  }
};

template <class Value>
struct ValueTile {
  TileOf<Value> whole;
  template <class Acc>
  __device__ __forceinline__ void copy(const Part<Acc>& part, int64_t at, int lane) {
    whole.copy(part.value, at, lane);
  }
  __device__ __forceinline__ Values<Value> get(int row, int lane) const {
    return {whole.get(row, lane)};
  }
};

template <>
struct ValueTile<SplitFloat> {
  TileOf<uint16_t> high, low;
  template <class Acc>
  __device__ __forceinline__ void copy(const Part<Acc>& part, int64_t at, int lane) {
    high.copy(part.value, at, lane);
    low.copy(part.low, at, lane);
  }
  __device__ __forceinline__ Values<SplitFloat> get(int row, int lane) const {
    return {high.get(row, lane), low.get(row, lane)};
  }
};

template <class T, int kNumber>
struct MomentTiles {
  TileOf<T> tile[kNumber];
};
template <class T>
struct MomentTiles<T, 0> {};

// A warp's own in shared memory. A gradient that is a sum of rows passes a few of them at a time.
template <class Value, UpdateKind kind, Inputs inputs>
struct StreamMemory {
  static_assert(inputs == Inputs::Grad || inputs == Inputs::HalfRows ||
                inputs == Inputs::FloatRows);
  using Row = std::conditional_t<inputs == Inputs::HalfRows, __half, float>;
  using Moment = typename Moments<Value, kind, float>::Format;
  static constexpr int kMoments = Moments<Value, kind, float>::kNumber;
  static constexpr int kRowsAtOnce = inputs == Inputs::Grad       ? 1
                                     : inputs == Inputs::HalfRows ? 4
                                                                  : 2;
  TileOf<Row> row[kRowsAtOnce];
  ValueTile<Value> value;
  MomentTiles<Moment, kMoments> moments;
  float4 factor[kRowsAtOnce];  // of a row: for each 128 elements of the tile
  CopyBarrier rows_here, values_here;
};

// A thread's side of it. What was read is replaced at once: rows by those that follow or by the
// next tile's, values by the next tile's.
template <class Value, UpdateKind kind, Inputs inputs>
class TileStream {
  using Memory = StreamMemory<Value, kind, inputs>;

 public:
  // Tiles first, first + step and so on, up to `end`. Copies of the first one begin.
  __device__ __forceinline__ TileStream(Memory& memory, const Table<float>& table,
                                        const Part<float>& part, int64_t first, int step,
                                        int64_t end, int lane)
      : memory_(memory),
        table_(table),
        part_(part),
        lane_(lane),
        step_(step),
        tile_(first),
        end_(end) {
    if (lane == 0) {
      memory_.rows_here.init();
      memory_.values_here.init();
    }
    __syncwarp();
    copy_rows(tile_, 0);
    copy_values(tile_);
  }

  __device__ __forceinline__ bool is_at_end() const { return tile_ >= end_; }
  __device__ __forceinline__ int64_t tile() const { return tile_; }

  // The gradient's sum over its rows in units of the noise's grid, for the lane's four groups.
  __device__ __forceinline__ void sum_rows(Four<float> (&sum)[4]) {
#pragma unroll
    for (Four<float>& group : sum) group = {};
#pragma unroll 1
    for (int first = 0; first < num_rows(); first += Memory::kRowsAtOnce) {
      share_factors();
      memory_.rows_here.wait(rows_phase_);
      rows_phase_ ^= 1u;
#pragma unroll
      for (int r = 0; r < Memory::kRowsAtOnce; ++r)
        if (first + r < num_rows()) add_from(r, sum);
      __syncwarp();
      if (first + Memory::kRowsAtOnce < num_rows()) {
        copy_rows(tile_, first + Memory::kRowsAtOnce);
      } else if (tile_ + step_ < end_) {
        copy_rows(tile_ + step_, 0);
      }
    }
  }

  __device__ __forceinline__ void wait_for_values() {
    memory_.values_here.wait(values_phase_);
    values_phase_ ^= 1u;
  }
  __device__ __forceinline__ Values<Value> value(int row) const {
    return memory_.value.get(row, lane_);
  }
  __device__ __forceinline__ Moments<Value, kind, float> moments(int row) const {
    Moments<Value, kind, float> all{};
    if constexpr (Memory::kMoments > 0) all.moment[0] = memory_.moments.tile[0].get(row, lane_);
    if constexpr (Memory::kMoments > 1) all.moment[1] = memory_.moments.tile[1].get(row, lane_);
    return all;
  }
  // After the last value was read.
  __device__ __forceinline__ void go_on() {
    __syncwarp();
    tile_ += step_;
    if (tile_ < end_) copy_values(tile_);
  }

 private:
  static constexpr bool kHasFactors = inputs != Inputs::Grad;

  __device__ __forceinline__ int num_rows() const {
    return kHasFactors ? part_.num_rows : 1;
  }

  __device__ __forceinline__ void copy_values(int64_t tile) {
    const int64_t at = tile * kTileElements - part_.first_element;
    memory_.value.copy(part_, at, lane_);
    if constexpr (Memory::kMoments > 0) memory_.moments.tile[0].copy(part_.first_moment, at, lane_);
    if constexpr (Memory::kMoments > 1)
      memory_.moments.tile[1].copy(part_.second_moment, at, lane_);
    memory_.values_here.arrive_after_copies();
  }
  // Rows from `first` on, as many as there is room for.
  __device__ __forceinline__ void copy_rows(int64_t tile, int first) {
    const int64_t at = tile * kTileElements - part_.first_element;
#pragma unroll
    for (int r = 0; r < Memory::kRowsAtOnce; ++r) {
      if (kHasFactors && first + r >= num_rows()) break;
      const void* from = kHasFactors ? part_.rows : part_.grad;
      memory_.row[r].copy(from, (first + r) * (kHasFactors ? part_.row_stride : 0) + at, lane_);
    }
    memory_.rows_here.arrive_after_copies();
    if constexpr (kHasFactors) own_factor_ = load_factor(tile, first);
  }

  // The lane's own one of those of a few rows: of row lane / 4 and 128 elements lane % 4.
  __device__ __forceinline__ float load_factor(int64_t tile, int first) const {
    static_assert(kGroupsPerUnit == kTileBlocks);
    constexpr uint32_t kUnits = kTileElements / kUnitElements;
    const int b = first + lane_ / 4;
    if (lane_ >= 4 * Memory::kRowsAtOnce || b >= part_.num_rows) return 0.0f;
    const uint32_t unit =
        min(static_cast<uint32_t>(tile) * kUnits + static_cast<uint32_t>(lane_ % 4),
            part_.units_per_row - 1);
    return part_.row_factors[static_cast<uint32_t>(b) * part_.factor_stride + unit];
  }
  __device__ __forceinline__ void share_factors() {
    if constexpr (kHasFactors) {
      if (lane_ < 4 * Memory::kRowsAtOnce)
        reinterpret_cast<float*>(memory_.factor)[lane_] = own_factor_ * table_.inverse_grid;
      __syncwarp();
    }
  }

  // The r-th of the rows that are there.
  __device__ __forceinline__ void add_from(int r, Four<float> (&sum)[4]) const {
    float of_group[4] = {table_.inverse_grid, table_.inverse_grid, table_.inverse_grid,
                         table_.inverse_grid};
    if constexpr (kHasFactors) {
      const float4 factor = memory_.factor[r];
      // One comparison for all groups: none of them is counted, or all are, and finite.
      if (fmaxf(fmaxf(factor.x, factor.y), fmaxf(factor.z, factor.w)) == 0.0f) return;
      of_group[0] = factor.x, of_group[1] = factor.y;
      of_group[2] = factor.z, of_group[3] = factor.w;
    }
#pragma unroll
    for (int u = 0; u < 4; ++u)
      add_scaled(sum[u], of_group[u], as_four<float>(memory_.row[r].get(u, lane_)));
  }

  Memory& memory_;
  const Table<float>& table_;
  const Part<float>& part_;
  const int lane_, step_;
  int64_t tile_;
  const int64_t end_;
  uint32_t rows_phase_ = 0, values_phase_ = 0;  // of the barriers
  float own_factor_ = 0;
};

}  // namespace
}  // namespace moonshard::kernels
