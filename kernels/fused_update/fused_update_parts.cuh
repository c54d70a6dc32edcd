// What both fused updates share: parts and their table, four numbers of any dtype, sums of
// gradients, update rules. One pass over value, gradient and moments; a
// block takes a chunk of one part, and the table of parts is a kernel parameter.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <type_traits>

#include "kernels/common/architecture.h"
#include "kernels/fused_update/fused_update_launch.h"
#include "kernels/secure_noise/secure_noise_math.h"

namespace moonshard::kernels {
namespace {

constexpr int kThreads = 256;

// The gradient's inputs. The common cases have loads without early dependencies; Any checks the
// dtypes at run time.
enum class Inputs { Grad, HalfRows, Bfloat16Rows, FloatRows, Any };

template <class Acc>
struct Part {
  void* value;
  void* low;
  const void* grad;
  const void* rows;
  const float* row_factors;
  void* first_moment;
  void* second_moment;
  int64_t count, row_stride, first_element;
  uint32_t parameter, units_per_row;
  int32_t num_rows, first_block;
  uint32_t factor_stride;
  UpdateFormat grad_format, row_format;
  bool vectors;  // a kernel's vectors are aligned to their size
  Acc step_size, inverse_root2;
};

template <class Acc>
struct Table {
  Part<Acc> part[kPartsPerLaunch];
  int num_parts;
  bool decoupled, draws;
  uint32_t noise_step;
  uint64_t noise_key;
  ChaChaKey secret_key;
  Acc lr, momentum, beta1, beta2, one_minus_beta1, one_minus_beta2, eps, decay;
  // Under a secret key sums are taken and noise is added in units of the noise's grid.
  Acc inverse_grid;
  Acc noise;  // standard deviation, after the division; under a secret key before it
  Acc scale;  // of sums: the division, and the grid
};
static_assert(sizeof(Table<double>) <= 4096, "kernel parameters that every driver takes");

// ---- four numbers ------------------------------------------------------------------------------

// As they lie in memory: converted late, so that the load need not have arrived.
template <class T>
struct Four {
  T number[4];
};

__device__ __forceinline__ void load_words(const void* from, uint32_t (&words)[2]) {
  const uint2 got = __ldcs(static_cast<const uint2*>(from));
  words[0] = got.x, words[1] = got.y;
}

__device__ __forceinline__ void load_words(const void* from, uint32_t (&words)[4]) {
  const uint4 got = __ldcs(static_cast<const uint4*>(from));
  words[0] = got.x, words[1] = got.y, words[2] = got.z, words[3] = got.w;
}

__device__ __forceinline__ void load_words(const void* from, uint32_t (&words)[8]) {
  const uint4 low = __ldcs(static_cast<const uint4*>(from));
  const uint4 high = __ldcs(static_cast<const uint4*>(from) + 1);
  words[0] = low.x, words[1] = low.y, words[2] = low.z, words[3] = low.w;
  words[4] = high.x, words[5] = high.y, words[6] = high.z, words[7] = high.w;
}

__device__ __forceinline__ void store_words(void* to, const uint32_t (&words)[2]) {
  __stcs(static_cast<uint2*>(to), make_uint2(words[0], words[1]));
}

__device__ __forceinline__ void store_words(void* to, const uint32_t (&words)[4]) {
  __stcs(static_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
}

__device__ __forceinline__ void store_words(void* to, const uint32_t (&words)[8]) {
  __stcs(static_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
  __stcs(static_cast<uint4*>(to) + 1, make_uint4(words[4], words[5], words[6], words[7]));
}

// The group's place in the part, from element i on. All four are the part's, at addresses that
// allow to move them at once.
struct WholeGroup {
  static constexpr int kUnroll = 2;  // groups in flight per thread: 64 to 128 bytes
  int64_t i;
  __device__ __forceinline__ explicit WholeGroup(int64_t at) : i(at) {}
  __device__ __forceinline__ WholeGroup(int64_t group, int64_t first_element, int64_t)
      : i(group * 4 - first_element) {}
  __device__ __forceinline__ bool is_empty() const { return false; }
};

// The same for any address, and for the ends of a part: those from i + first on, up to i + end.
struct SomeLanes {
  static constexpr int kUnroll = 1;
  int64_t i;
  int first, end;
  __device__ __forceinline__ SomeLanes(int64_t group, int64_t first_element, int64_t count)
      : i(group * 4 - first_element),
        first(i < 0 ? static_cast<int>(-i) : 0),
        end(count - i <= 0  ? 0
            : count - i < 4 ? static_cast<int>(count - i)
                            : 4) {}
  __device__ __forceinline__ bool is_empty() const { return end <= first; }
};

template <class T, class Place>
__device__ __forceinline__ Four<T> load(const void* base, const Place& lanes) {
  Four<T> four;
  const T* from = static_cast<const T*>(base) + lanes.i;
  if constexpr (std::is_same_v<Place, WholeGroup>) {
    uint32_t words[sizeof(Four<T>) / 4];
    load_words(from, words);
    memcpy(&four, words, sizeof four);
  } else {
#pragma unroll
    for (int lane = 0; lane < 4; ++lane)
      four.number[lane] = lane >= lanes.first && lane < lanes.end ? from[lane] : T(0.0f);
  }
  return four;
}

template <class T, class Place>
__device__ __forceinline__ void store(void* base, const Place& lanes, const Four<T>& four) {
  T* to = static_cast<T*>(base) + lanes.i;
  if constexpr (std::is_same_v<Place, WholeGroup>) {
    uint32_t words[sizeof(Four<T>) / 4];
    memcpy(words, &four, sizeof four);
    store_words(to, words);
  } else {
#pragma unroll
    for (int lane = 0; lane < 4; ++lane)
      if (lane >= lanes.first && lane < lanes.end) to[lane] = four.number[lane];
  }
}

template <class To, class From>
__device__ __forceinline__ To as(From x) {
  return static_cast<To>(x);
}
template <>
__device__ __forceinline__ float as<float, __nv_bfloat16>(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <>
__device__ __forceinline__ float as<float, __half>(__half x) {
  return __half2float(x);
}
template <>
__device__ __forceinline__ double as<double, __nv_bfloat16>(__nv_bfloat16 x) {
  return static_cast<double>(__bfloat162float(x));
}
template <>
__device__ __forceinline__ double as<double, __half>(__half x) {
  return static_cast<double>(__half2float(x));
}
template <>
__device__ __forceinline__ __nv_bfloat16 as<__nv_bfloat16, float>(float x) {
  return __float2bfloat16_rn(x);
}

template <class To, class From>
__device__ __forceinline__ Four<To> as_four(const Four<From>& from) {
  Four<To> four;
#pragma unroll
  for (int lane = 0; lane < 4; ++lane) four.number[lane] = as<To>(from.number[lane]);
  return four;
}

template <class Acc, class Place>
__device__ __forceinline__ Four<Acc> load_any(const void* base, UpdateFormat format,
                                              const Place& lanes) {
  switch (format) {
    case UpdateFormat::Float:
      return as_four<Acc>(load<float>(base, lanes));
    case UpdateFormat::Double:
      return as_four<Acc>(load<double>(base, lanes));
    case UpdateFormat::Bfloat16:
      return as_four<Acc>(load<__nv_bfloat16>(base, lanes));
    case UpdateFormat::Half:
      return as_four<Acc>(load<__half>(base, lanes));
    default:
      return {{Acc(0), Acc(0), Acc(0), Acc(0)}};
  }
}

// ---- values ------------------------------------------------------------------------------------

// The kind of values in two halves (kernels/split_float/split_float.h).
struct SplitFloat {};

// A group's values as they lie in memory.
template <class Value>
struct Values {
  using Moment = Value;
  Four<Value> four;
  template <class Acc, class Place>
  __device__ __forceinline__ void begin(const Part<Acc>& part, const Place& lanes) {
    four = load<Value>(part.value, lanes);
  }
  template <class Acc>
  __device__ __forceinline__ Acc get(int lane) const {
    return as<Acc>(four.number[lane]);
  }
  template <class Acc>
  __device__ __forceinline__ void set(int lane, Acc value) {
    four.number[lane] = as<Value>(value);
  }
  template <class Acc, class Place>
  __device__ __forceinline__ void end(const Part<Acc>& part, const Place& lanes) const {
    store<Value>(part.value, lanes, four);
  }
};

template <>
struct Values<SplitFloat> {
  using Moment = float;
  Four<uint16_t> high, low;
  template <class Acc, class Place>
  __device__ __forceinline__ void begin(const Part<Acc>& part, const Place& lanes) {
    high = load<uint16_t>(part.value, lanes);
    low = load<uint16_t>(part.low, lanes);
  }
  template <class Acc>
  __device__ __forceinline__ Acc get(int lane) const {
    const uint32_t rest = static_cast<uint32_t>(static_cast<int16_t>(low.number[lane]));
    return __uint_as_float((static_cast<uint32_t>(high.number[lane]) << 16) + rest);
  }
  template <class Acc>
  __device__ __forceinline__ void set(int lane, Acc value) {
    // The sum below would carry the NaN of arithmetic, all bits but the sign, over to zero.
    const auto bits = static_cast<uint32_t>(min(__float_as_int(value), 0x7fff7fff));
    high.number[lane] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
    low.number[lane] = static_cast<uint16_t>(bits);
  }
  template <class Acc, class Place>
  __device__ __forceinline__ void end(const Part<Acc>& part, const Place& lanes) const {
    store<uint16_t>(part.value, lanes, high);
    store<uint16_t>(part.low, lanes, low);
  }
};

template <class Acc>
__device__ __forceinline__ void add_scaled(Four<Acc>& sum, float factor, const Four<Acc>& row) {
#pragma unroll
  for (int lane = 0; lane < 4; ++lane)
    sum.number[lane] += static_cast<Acc>(factor) * row.number[lane];
}

// A factor of 0 leaves the row out, whatever is in it.
template <class Acc>
__device__ __forceinline__ void add_row(Four<Acc>& sum, float factor, const Four<Acc>& row) {
#pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    const Acc counted = factor != 0.0f ? row.number[lane] : Acc(0);
    sum.number[lane] += static_cast<Acc>(factor) * counted;
  }
}

// ---- the sum of a group's gradients
// --------------------------------------------------------------

constexpr int kGroupsPerUnit = kUnitElements / 4;

// Of row b for the group at `i` in the part.
template <class Acc>
__device__ __forceinline__ float factor_of(const Part<Acc>& part, int b, int64_t i) {
  const auto unit =
      static_cast<uint32_t>(static_cast<uint64_t>(part.first_element + i) / kUnitElements);
  return part.row_factors[static_cast<uint32_t>(b) * part.factor_stride +
                          min(unit, part.units_per_row - 1)];
}

// begin() issues loads, finish() uses them: work in between overlaps with the loads.
template <class Acc, Inputs inputs>
struct GradientSum;

template <class Acc>
struct GradientSum<Acc, Inputs::Grad> {
  Four<float> grad;
  template <class Place>
  __device__ __forceinline__ void begin(const Part<Acc>& part, const Place& lanes) {
    grad = load<float>(part.grad, lanes);
  }
  template <class Place>
  __device__ __forceinline__ Four<Acc> finish(const Part<Acc>&, const Place&) const {
    return as_four<Acc>(grad);
  }
};

template <class Acc, class Row>
struct RowSum {
  Four<Row> first, second;
  float factor, second_factor;
  __device__ __forceinline__ static const Row* row(const Part<Acc>& part, int b) {
    return static_cast<const Row*>(part.rows) + b * part.row_stride;
  }
  template <class Place>
  __device__ __forceinline__ void begin_rows(const Part<Acc>& part, const Place& lanes) {
    first = load<Row>(row(part, 0), lanes);
    // A single row is read twice: the second time from the cache, for a factor that is not used.
    second = load<Row>(row(part, part.num_rows > 1 ? 1 : 0), lanes);
  }
  template <class Place>
  __device__ __forceinline__ void begin(const Part<Acc>& part, const Place& lanes) {
    begin_rows(part, lanes);
    factor = factor_of(part, 0, lanes.i);
    second_factor = part.num_rows > 1 ? factor_of(part, 1, lanes.i) : 0.0f;
  }
  template <class Place>
  __device__ __forceinline__ static Four<Row> load_row(const Part<Acc>& part, int b,
                                                       const Place& lanes) {
    return load<Row>(row(part, b), lanes);
  }
  // Factors are the same for all threads of a unit: one comparison instead of a selection each.
  __device__ __forceinline__ Four<Acc> sum_of_two(float one, float other) const {
    Four<Acc> sum{};
    if (one != 0.0f) add_scaled(sum, one, as_four<Acc>(first));
    if (other != 0.0f) add_scaled(sum, other, as_four<Acc>(second));
    return sum;
  }
  template <class Place>
  __device__ __forceinline__ Four<Acc> finish(const Part<Acc>& part, const Place& lanes) const {
    Four<Acc> sum = sum_of_two(factor, second_factor);
#pragma unroll 4
    for (int b = 2; b < part.num_rows; ++b)
      add_row(sum, factor_of(part, b, lanes.i), as_four<Acc>(load_row(part, b, lanes)));
    return sum;
  }
};

template <class Acc>
struct GradientSum<Acc, Inputs::HalfRows> : RowSum<Acc, __half> {};
template <class Acc>
struct GradientSum<Acc, Inputs::Bfloat16Rows> : RowSum<Acc, __nv_bfloat16> {};
template <class Acc>
struct GradientSum<Acc, Inputs::FloatRows> : RowSum<Acc, float> {};

template <class Acc>
struct GradientSum<Acc, Inputs::Any> {
  Four<Acc> sum;
  template <class Place>
  __device__ __forceinline__ void begin(const Part<Acc>& part, const Place& lanes) {
    sum = load_any<Acc>(part.grad, part.grad_format, lanes);
    const int64_t size = part.row_format == UpdateFormat::Double  ? 8
                         : part.row_format == UpdateFormat::Float ? 4
                                                                  : 2;
    const char* row = static_cast<const char*>(part.rows);
    for (int b = 0; b < part.num_rows; ++b, row += part.row_stride * size)
      add_row(sum, factor_of(part, b, lanes.i), load_any<Acc>(row, part.row_format, lanes));
  }
  template <class Place>
  __device__ __forceinline__ Four<Acc> finish(const Part<Acc>&, const Place&) const {
    return sum;
  }
};

// ---- the update of a group
// -----------------------------------------------------------------------

// In float32 within two of the last bits; the exact ones would cost Adam its memory speed.
__device__ __forceinline__ float square_root(float x) {
  float result;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ double square_root(double x) {
  return sqrt(x);
}
__device__ __forceinline__ float divided(float a, float b) {
  return __fdividef(a, b);
}
__device__ __forceinline__ double divided(double a, double b) {
  return a / b;
}

template <class Value, UpdateKind kind, class Acc>
struct Moments {
  using Format =
      std::conditional_t<kind == UpdateKind::Momentum, Acc, typename Values<Value>::Moment>;
  static constexpr int kNumber = kind == UpdateKind::Adam       ? 2
                                 : kind == UpdateKind::Momentum ? 1
                                                                : 0;
  Four<Format> moment[kNumber == 0 ? 1 : kNumber];

  template <class Place>
  __device__ __forceinline__ void begin(const Part<Acc>& part, const Place& lanes) {
    if constexpr (kNumber > 0) moment[0] = load<Format>(part.first_moment, lanes);
    if constexpr (kNumber > 1) moment[1] = load<Format>(part.second_moment, lanes);
  }
  template <class Place>
  __device__ __forceinline__ void end(const Part<Acc>& part, const Place& lanes) const {
    if constexpr (kNumber > 0) store<Format>(part.first_moment, lanes, moment[0]);
    if constexpr (kNumber > 1) store<Format>(part.second_moment, lanes, moment[1]);
  }
  // The lane's new value, by LibTorch's formulas (ATen/native/cuda/fused_adam_utils.cuh).
  __device__ __forceinline__ Acc update(int lane, Acc value, Acc g, const Part<Acc>& part,
                                        const Table<Acc>& table) {
    if constexpr (kind == UpdateKind::Replace) {
      return g;
    } else if constexpr (kind == UpdateKind::Sgd) {
      return value - table.lr * g;
    } else if constexpr (kind == UpdateKind::Momentum) {
      Acc& sum = moment[0].number[lane];
      sum = table.momentum * sum + g;
      return value - table.lr * sum;
    } else {
      if (table.decoupled) {
        value -= table.lr * table.decay * value;
      } else {
        g += table.decay * value;
      }
      const Acc mean = table.beta1 * as<Acc>(moment[0].number[lane]) + table.one_minus_beta1 * g;
      const Acc square =
          table.beta2 * as<Acc>(moment[1].number[lane]) + table.one_minus_beta2 * g * g;
      moment[0].number[lane] = as<Format>(mean);
      moment[1].number[lane] = as<Format>(square);
      const Acc spread = square_root(square) * part.inverse_root2 + table.eps;
      return value - part.step_size * divided(mean, spread);
    }
  }
};

template <class Acc>
__device__ __forceinline__ const Part<Acc>& part_of_block(const Table<Acc>& table) {
  int which = 0;  // the last part that begins at this block or before it
#pragma unroll
  for (int step = kPartsPerLaunch / 2; step > 0; step /= 2) {
    if (which + step < table.num_parts &&
        static_cast<int>(blockIdx.x) >= table.part[which + step].first_block)
      which += step;
  }
  return table.part[which];
}

}  // namespace
}  // namespace moonshard::kernels
