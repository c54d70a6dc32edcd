// Forward: a block per row. Backward: a block per chunk of a sample's tokens, row after row. Three
// sums over tokens stay in its registers; everything that a sample's rows have for gradients
// follows from them, because gate, scale, weight and bias do not change within a sample:
//   sum of out,  sum of out * h,  sum of (gradient of y) * branch.
// A second, small launch adds the chunks and makes the rows.
#include "kernels/common/architecture.h"
#include "kernels/common/packs.cuh"
#include "kernels/layer_norm/layer_norm_launch.h"

namespace moonshard::kernels {
namespace {

// Eight numbers of a row for each thread: the row is as wide as the block, 8 packs of one number or
// one pack of 8.
constexpr int kNumbers = 8, kMostThreads = static_cast<int>(kLayerNormMostWidth) / kNumbers;

// Sums of two values over the block, the same on all threads. Two calls in a row take different
// `parity`.
__device__ __forceinline__ float2 block_sums(float2 value, int parity) {
  __shared__ float2 warp_sums[2][32];
  for (int step = 16; step > 0; step /= 2) {
    value.x += __shfl_xor_sync(0xffffffffu, value.x, step);
    value.y += __shfl_xor_sync(0xffffffffu, value.y, step);
  }
  const int warps = (static_cast<int>(blockDim.x) + 31) / 32;
  if (warps == 1) return value;
  if (threadIdx.x % 32 == 0) warp_sums[parity][threadIdx.x / 32] = value;
  __syncthreads();
  float2 sum = make_float2(0, 0);
  for (int warp = 0; warp < warps; ++warp) {
    sum.x += warp_sums[parity][warp].x;
    sum.y += warp_sums[parity][warp].y;
  }
  return sum;
}

// A thread's numbers of a row, as floats. What lies behind the row's end is 0.
template <class T, int kPack>
struct RowPart {
  float number[kNumbers];

  __device__ __forceinline__ static int place(int j) {
    return (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kPack;
  }
  __device__ __forceinline__ void fill(float value) {
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) number[i] = value;
  }
  __device__ __forceinline__ void load(const T* row, int width) {
#pragma unroll
    for (int j = 0; j < kNumbers / kPack; ++j) {
      if (place(j) < width) {
        const auto pack = Pack<T, kPack>::load(row + place(j));
#pragma unroll
        for (int i = 0; i < kPack; ++i) number[j * kPack + i] = pack[i];
      } else {
#pragma unroll
        for (int i = 0; i < kPack; ++i) number[j * kPack + i] = 0;
      }
    }
  }
  __device__ __forceinline__ void store(T* row, int width) const {
#pragma unroll
    for (int j = 0; j < kNumbers / kPack; ++j) {
      if (place(j) >= width) continue;
      Pack<T, kPack> pack;
#pragma unroll
      for (int i = 0; i < kPack; ++i) pack.set(i, number[j * kPack + i]);
      pack.store(row + place(j));
    }
  }
  /// Whether number i belongs to the row.
  __device__ __forceinline__ static bool inside(int i, int width) {
    return place(i / kPack) < width;
  }
};

template <class T>
__device__ __forceinline__ const T* row_of(const SampleRows& rows, int64_t sample) {
  return static_cast<const T*>(rows.data) + sample * rows.stride;
}

template <class T, class W, int kPack>
__global__ void __launch_bounds__(kMostThreads)
    layer_norm_forward_kernel(const LayerNormForward p) {
  using Part = RowPart<T, kPack>;
  const int64_t row = blockIdx.x, begin = row * p.width, sample = row / p.tokens;
  const float width = static_cast<float>(p.width);
  Part y;
  y.load(static_cast<const T*>(p.x) + begin, p.width);
  if (p.branch != nullptr) {
    Part branch, gate;
    branch.load(static_cast<const T*>(p.branch) + begin, p.width);
    gate.load(row_of<T>(p.gate, sample), p.width);
#pragma unroll
    for (int i = 0; i < kNumbers; ++i)
      y.number[i] = rounded_to<T>(y.number[i] + gate.number[i] * branch.number[i]);
    y.store(static_cast<T*>(p.y) + begin, p.width);
  }
  float sum = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) sum += y.number[i];
  const float mean = block_sum(sum, 0) / width;
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) {
    y.number[i] = Part::inside(i, p.width) ? y.number[i] - mean : 0.0f;
    squares += y.number[i] * y.number[i];
  }
  const float inverse = rsqrtf(block_sum(squares, 1) / width + p.eps);
  if (threadIdx.x == 0) {
    p.mean[row] = mean;
    p.inverse_spread[row] = inverse;
  }
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) y.number[i] = rounded_to<T>(y.number[i] * inverse);
  if (p.weight != nullptr) {
    RowPart<W, kPack> weight, bias;
    weight.load(static_cast<const W*>(p.weight), p.width);
    bias.load(static_cast<const W*>(p.bias), p.width);
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {
      y.number[i] = rounded_to<T>(y.number[i] * rounded_to<T>(weight.number[i]) +
                                  rounded_to<T>(bias.number[i]));
    }
  }
  if (p.scale.data != nullptr) {
    Part scale, shift;
    scale.load(row_of<T>(p.scale, sample), p.width);
    shift.load(row_of<T>(p.shift, sample), p.width);
#pragma unroll
    for (int i = 0; i < kNumbers; ++i)
      y.number[i] = y.number[i] * (1.0f + scale.number[i]) + shift.number[i];
  }
  y.store(static_cast<T*>(p.result) + begin, p.width);
}

template <class T, class W, int kPack>
__global__ void __launch_bounds__(kMostThreads)
    layer_norm_backward_kernel(const LayerNormBackward p) {
  using Part = RowPart<T, kPack>;
  const int64_t sample = blockIdx.x / p.chunks;
  const int chunk = static_cast<int>(blockIdx.x % p.chunks);
  const int64_t first = p.tokens * chunk / p.chunks, end = p.tokens * (chunk + 1) / p.chunks;
  const float width = static_cast<float>(p.width);

  // What a gradient of the result is multiplied by on its way to n and to h.
  Part to_n, to_h, gate;
  to_n.fill(1);
  if (p.scale.data != nullptr) {
    to_n.load(row_of<T>(p.scale, sample), p.width);
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) to_n.number[i] += 1.0f;
  }
  to_h = to_n;
  if (p.weight != nullptr) {
    RowPart<W, kPack> weight;
    weight.load(static_cast<const W*>(p.weight), p.width);
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) to_h.number[i] *= rounded_to<T>(weight.number[i]);
  }
  gate.fill(0);
  if (p.branch != nullptr) gate.load(row_of<T>(p.gate, sample), p.width);

  RowPart<float, kPack> sum_out, sum_out_h, sum_dy_branch;
  sum_out.fill(0);
  sum_out_h.fill(0);
  sum_dy_branch.fill(0);
  for (int64_t t = first; t < end; ++t) {
    const int64_t row = sample * p.tokens + t, begin = row * p.width;
    const float mean = p.mean[row], inverse = p.inverse_spread[row];
    Part h, out, total, branch;
    h.load(static_cast<const T*>(p.y) + begin, p.width);
    out.load(static_cast<const T*>(p.d_result) + begin, p.width);
    total.fill(0);
    if (p.dy != nullptr) total.load(static_cast<const T*>(p.dy) + begin, p.width);
    branch.fill(0);
    if (p.branch != nullptr) branch.load(static_cast<const T*>(p.branch) + begin, p.width);
    float2 along = make_float2(0, 0);  // the parts that centring and scaling take out
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {
      h.number[i] = (h.number[i] - mean) * inverse;
      const float dh = out.number[i] * to_h.number[i];  // 0 behind the row's end, as out is
      along.x += dh;
      along.y += dh * h.number[i];
    }
    along = block_sums(along, static_cast<int>(t & 1));
    along.x /= width;
    along.y /= width;
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) {
      const float dh = out.number[i] * to_h.number[i];
      total.number[i] += inverse * (dh - along.x - h.number[i] * along.y);
      sum_out.number[i] += out.number[i];
      sum_out_h.number[i] += out.number[i] * rounded_to<T>(h.number[i]);
      sum_dy_branch.number[i] += total.number[i] * branch.number[i];
    }
    total.store(static_cast<T*>(p.dx) + begin, p.width);
    if (p.normalised != nullptr) {
      h.store(static_cast<T*>(p.normalised) + begin, p.width);
      Part dn;
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) dn.number[i] = out.number[i] * to_n.number[i];
      dn.store(static_cast<T*>(p.dn) + begin, p.width);
    }
    if (p.d_branch != nullptr) {
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) total.number[i] *= gate.number[i];
      total.store(static_cast<T*>(p.d_branch) + begin, p.width);
    }
  }
  if (p.chunk_sums == nullptr) return;
  float* sums = p.chunk_sums + static_cast<int64_t>(blockIdx.x) * 3 * p.width;
  sum_out.store(sums, p.width);
  sum_out_h.store(sums + p.width, p.width);
  sum_dy_branch.store(sums + 2 * p.width, p.width);
}

constexpr int kColumns = 32, kLanes = 16;

template <class T, class W>
__global__ void __launch_bounds__(kColumns* kLanes)
    layer_norm_rows_kernel(const LayerNormBackward p) {
  __shared__ float lane_sums[3][kLanes][kColumns];
  const int blocks_of_row = (p.width + kColumns - 1) / kColumns;
  const int64_t sample = blockIdx.x / blocks_of_row;
  const int column = static_cast<int>(blockIdx.x % blocks_of_row) * kColumns + threadIdx.x;
  float sums[3] = {};
  if (column < p.width) {
    const float* from = p.chunk_sums + sample * p.chunks * 3 * p.width + column;
#pragma unroll 4
    for (int chunk = threadIdx.y; chunk < p.chunks; chunk += kLanes) {
#pragma unroll
      for (int k = 0; k < 3; ++k) sums[k] += from[(static_cast<int64_t>(chunk) * 3 + k) * p.width];
    }
  }
#pragma unroll
  for (int k = 0; k < 3; ++k) lane_sums[k][threadIdx.y][threadIdx.x] = sums[k];
  __syncthreads();
  if (threadIdx.y != 0 || column >= p.width) return;
  for (int lane = 1; lane < kLanes; ++lane) {
#pragma unroll
    for (int k = 0; k < 3; ++k) sums[k] += lane_sums[k][lane][threadIdx.x];
  }
  const int64_t place = sample * p.width + column;
  const auto parameter = [&](const void* all, float without) {
    return all != nullptr ? rounded_to<T>(static_cast<float>(static_cast<const W*>(all)[column]))
                          : without;
  };
  const float to_n = p.scale.data != nullptr
                         ? 1.0f + static_cast<float>(row_of<T>(p.scale, sample)[column])
                         : 1.0f;
  if (p.d_shift != nullptr) static_cast<T*>(p.d_shift)[place] = static_cast<T>(sums[0]);
  if (p.d_scale != nullptr) {
    static_cast<T*>(p.d_scale)[place] =
        static_cast<T>(parameter(p.weight, 1) * sums[1] + parameter(p.bias, 0) * sums[0]);
  }
  if (p.d_gate != nullptr) static_cast<T*>(p.d_gate)[place] = static_cast<T>(sums[2]);
  if (p.weight_rows != nullptr) p.weight_rows[place] = to_n * sums[1];
  if (p.bias_rows != nullptr) p.bias_rows[place] = to_n * sums[0];
}

int threads_for(int width) {
  return ((width + kNumbers - 1) / kNumbers + 31) / 32 * 32;
}

bool is_wide(const SampleRows& rows) {
  return rows.data == nullptr || (is_aligned_16(rows.data) && rows.stride % 8 == 0);
}

template <class T, class W, int kPack>
void launch(const LayerNormForward& p, cudaStream_t stream) {
  layer_norm_forward_kernel<T, W, kPack>
      <<<static_cast<unsigned>(p.samples * p.tokens), threads_for(p.width), 0, stream>>>(p);
}

template <class T, class W, int kPack>
void launch(const LayerNormBackward& p, cudaStream_t stream) {
  layer_norm_backward_kernel<T, W, kPack>
      <<<static_cast<unsigned>(p.samples * p.chunks), threads_for(p.width), 0, stream>>>(p);
  if (p.chunk_sums == nullptr) return;
  const int64_t blocks = p.samples * ((p.width + kColumns - 1) / kColumns);
  layer_norm_rows_kernel<T, W>
      <<<static_cast<unsigned>(blocks), dim3(kColumns, kLanes), 0, stream>>>(p);
}

template <class Pass>
void launch_by_format(const Pass& p, bool wide, cudaStream_t stream) {
  with_formats(p, [&](auto rows, auto weight) {
    using T = typename decltype(rows)::type;
    using W = typename decltype(weight)::type;
    wide ? launch<T, W, 8>(p, stream) : launch<T, W, 1>(p, stream);
  });
}

}  // namespace

void launch_layer_norm_forward(const LayerNormForward& p, void* stream) {
  const bool wide = p.width % 8 == 0 && is_aligned_16(p.x) && is_aligned_16(p.branch) &&
                    is_wide(p.gate) && is_wide(p.scale) && is_wide(p.shift) &&
                    is_aligned_16(p.weight) && is_aligned_16(p.bias) && is_aligned_16(p.y) &&
                    is_aligned_16(p.result);
  launch_by_format(p, wide, static_cast<cudaStream_t>(stream));
  check_launch("layer_norm_forward");
}

void launch_layer_norm_backward(const LayerNormBackward& p, void* stream) {
  const bool wide = p.width % 8 == 0 && is_aligned_16(p.d_result) && is_aligned_16(p.dy) &&
                    is_aligned_16(p.y) && is_aligned_16(p.branch) && is_wide(p.gate) &&
                    is_wide(p.scale) && is_aligned_16(p.weight) && is_aligned_16(p.dx) &&
                    is_aligned_16(p.d_branch) && is_aligned_16(p.normalised) &&
                    is_aligned_16(p.dn) && is_aligned_16(p.chunk_sums);
  launch_by_format(p, wide, static_cast<cudaStream_t>(stream));
  check_launch("layer_norm_backward");
}

}  // namespace moonshard::kernels
