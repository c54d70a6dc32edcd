#include "kernels/fused_update/fused_update_cpu.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/common/host_threads.h"
#include "kernels/counter_noise/counter_noise_cpu.h"
#include "kernels/fused_update/fused_update_tile.h"
#include "kernels/secure_noise/secure_noise_cpu.h"

namespace moonshard::kernels {

// Outside of the anonymous namespace: versions for several processors are looked up by name.
namespace host_update {

using FloatNumbers = PlainNumbers<float>;
using DoubleNumbers = PlainNumbers<double>;

#define MS_UPDATE(name, Values, Moments, kind)                                   \
  MS_HOST_VECTORS void name(const UpdateTile& tile, const Values::Acc* gradient, \
                            const TileRule<Values::Acc>& rule) {                 \
    update_tile<Values, Moments, UpdateKind::kind>(tile, gradient, rule);        \
  }
#define MS_UPDATES(name, Values, Moments)               \
  MS_UPDATE(name##_replace, Values, Moments, Replace)   \
  MS_UPDATE(name##_sgd, Values, Moments, Sgd)           \
  MS_UPDATE(name##_momentum, Values, Moments, Momentum) \
  MS_UPDATE(name##_adam, Values, Moments, Adam)

MS_UPDATES(float, FloatNumbers, FloatNumbers)
MS_UPDATES(double, DoubleNumbers, DoubleNumbers)
MS_UPDATES(bfloat16, Bfloat16Numbers, Bfloat16Numbers)
MS_UPDATES(split, SplitNumbers, FloatNumbers)

MS_HOST_VECTORS void widen(float* to, const uint16_t* from) {
  for (int64_t i = 0; i < kUpdateTile; ++i) to[i] = bfloat16_as_float(from[i]);
}
MS_HOST_VECTORS void divide(float* to, const float* from, float by) {
#pragma GCC ivdep
  for (int64_t i = 0; i < kUpdateTile; ++i) to[i] = from[i] / by;
}
MS_HOST_VECTORS void divide(double* to, const double* from, double by) {
#pragma GCC ivdep
  for (int64_t i = 0; i < kUpdateTile; ++i) to[i] = from[i] / by;
}
MS_HOST_VECTORS void multiply(float* to, const float* from, float by) {
#pragma GCC ivdep
  for (int64_t i = 0; i < kUpdateTile; ++i) to[i] = from[i] * by;
}
MS_HOST_VECTORS void multiply(double* to, const double* from, double by) {
#pragma GCC ivdep
  for (int64_t i = 0; i < kUpdateTile; ++i) to[i] = from[i] * by;
}

}  // namespace host_update

namespace {

constexpr int64_t kPieceTiles = 64;  // what a thread takes at a time

template <class Acc>
using TileUpdate = void (*)(const UpdateTile&, const Acc*, const TileRule<Acc>&);

template <class Acc>
TileUpdate<Acc> of_kind(UpdateKind kind, TileUpdate<Acc> replace, TileUpdate<Acc> sgd,
                        TileUpdate<Acc> momentum, TileUpdate<Acc> adam) {
  return kind == UpdateKind::Replace    ? replace
         : kind == UpdateKind::Sgd      ? sgd
         : kind == UpdateKind::Momentum ? momentum
                                        : adam;
}

// ---- a part ------------------------------------------------------------------------------------

// Bytes per element of the arrays.
struct ElementSizes {
  size_t value = 0, low = 0, grad = 0, moment = 0;
};

template <class Acc>
struct HostPart {
  UpdateTile at;               // its first element
  const void* grad = nullptr;  // in Acc or, with 2 bytes, in bfloat16; or null
  ElementSizes size;
  int64_t count = 0, first_element = 0, first_piece = 0;
  uint32_t parameter = 0;
  TileUpdate<Acc> update = nullptr;
  TileRule<Acc> rule{};

  int64_t first_tile() const { return first_element / kUpdateTile; }
  int64_t tiles() const {
    return (first_element + count + kUpdateTile - 1) / kUpdateTile - first_tile();
  }
};

template <class T>
T* moved(T* base, int64_t elements, size_t size) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return base == nullptr ? nullptr
                         : static_cast<Byte*>(base) + elements * static_cast<int64_t>(size);
}

// A tile that is not all the part's, as a whole one.
struct TileEnds {
  alignas(64) char value[8 * kUpdateTile], low[2 * kUpdateTile], grad[8 * kUpdateTile];
  alignas(64) char first[8 * kUpdateTile], second[8 * kUpdateTile];

  TileEnds() { memset(this, 0, sizeof *this); }
};

template <class Acc>
void work_on_tile(const HostPart<Acc>& part, const UpdateTile& tile, const void* grad,
                  int64_t index, const UpdateNoise& noise) {
  alignas(64) Acc buffer[kUpdateTile];
  const Acc* gradient = buffer;
  if (grad == nullptr) {
    memset(buffer, 0, sizeof buffer);
  } else if (part.size.grad == sizeof(Acc)) {
    gradient = static_cast<const Acc*>(grad);
  } else {
    if constexpr (std::is_same_v<Acc, float>)
      host_update::widen(buffer, static_cast<const uint16_t*>(grad));
  }
  if (noise.std != 0) {
    if (gradient != buffer) memcpy(buffer, gradient, sizeof buffer);
    gradient = buffer;
    if (noise.secret != nullptr) {
      add_secure_tile(buffer, float_at_least(noise.std), static_cast<Acc>(secure_grid(noise.std)),
                      {*noise.secret, noise.step, part.parameter}, index);
    } else {
      add_counter_range(buffer, kUpdateTile, noise.std, {noise.key, noise.step, part.parameter},
                        index * kUpdateTile);
    }
  }
  const auto by = static_cast<Acc>(noise.denominator);
  int exponent = 0;
  if (std::frexp(by, &exponent) == Acc(0.5)) {  // a power of two: the product is the quotient
    if (by != 1) host_update::multiply(buffer, gradient, 1 / by), gradient = buffer;
  } else {
    host_update::divide(buffer, gradient, by), gradient = buffer;
  }
  part.update(tile, gradient, part.rule);
}

template <class Acc>
void work_on_ends(const HostPart<Acc>& part, int64_t index, int64_t from, int64_t to,
                  const UpdateNoise& noise) {
  TileEnds ends;
  const auto count = static_cast<size_t>(to - from);
  const int64_t place = part.first_element + from - index * kUpdateTile;
  const ElementSizes& size = part.size;
  const auto in = [&](char* buffer, const void* base, size_t bytes) {
    if (base != nullptr)
      memcpy(buffer + place * static_cast<int64_t>(bytes), moved(base, from, bytes), count * bytes);
  };
  const auto out = [&](const char* buffer, void* base, size_t bytes) {
    if (base != nullptr)
      memcpy(moved(base, from, bytes), buffer + place * static_cast<int64_t>(bytes), count * bytes);
  };
  in(ends.value, part.at.value, size.value);
  in(ends.low, part.at.low, size.low);
  in(ends.first, part.at.first_moment, size.moment);
  in(ends.second, part.at.second_moment, size.moment);
  in(ends.grad, part.grad, size.grad);
  work_on_tile(part, {ends.value, ends.low, ends.first, ends.second},
               part.grad == nullptr ? nullptr : ends.grad, index, noise);
  out(ends.value, part.at.value, size.value);
  out(ends.low, part.at.low, size.low);
  out(ends.first, part.at.first_moment, size.moment);
  out(ends.second, part.at.second_moment, size.moment);
}

template <class Acc>
void work_on_piece(const HostPart<Acc>& part, int64_t piece, const UpdateNoise& noise) {
  const int64_t first = part.first_tile() + piece * kPieceTiles;
  const int64_t end = std::min(first + kPieceTiles, part.first_tile() + part.tiles());
  for (int64_t index = first; index < end; ++index) {
    const int64_t begin = index * kUpdateTile - part.first_element;
    const int64_t from = std::max<int64_t>(begin, 0);
    const int64_t to = std::min(begin + kUpdateTile, part.count);
    if (to - from < kUpdateTile) {
      work_on_ends(part, index, from, to, noise);
      continue;
    }
    const ElementSizes& size = part.size;
    work_on_tile(part,
                 {moved(part.at.value, from, size.value), moved(part.at.low, from, size.low),
                  moved(part.at.first_moment, from, size.moment),
                  moved(part.at.second_moment, from, size.moment)},
                 moved(part.grad, from, size.grad), index, noise);
  }
}

template <class Acc>
void work_on_all(std::vector<HostPart<Acc>>& parts, const UpdateNoise& noise) {
  int64_t pieces = 0;
  for (HostPart<Acc>& part : parts) {
    part.first_piece = pieces;
    pieces += (part.tiles() + kPieceTiles - 1) / kPieceTiles;
  }
  share_pieces(pieces, [&](int64_t piece) {
    const auto after = std::upper_bound(
        parts.begin(), parts.end(), piece,
        [](int64_t wanted, const HostPart<Acc>& part) { return wanted < part.first_piece; });
    const HostPart<Acc>& part = *(after - 1);
    work_on_piece(part, piece - part.first_piece, noise);
  });
}

// ---- from tensors ------------------------------------------------------------------------------

bool is_adam(UpdateKind kind) {
  return kind == UpdateKind::Adam || kind == UpdateKind::AdamW;
}

bool host_kernel_takes(const UpdatePart& part, UpdateKind kind) {
  const at::ScalarType type = part.value.scalar_type();
  const at::ScalarType acc = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::ScalarType moment = part.low.defined() || kind == UpdateKind::Momentum ? acc : type;
  if (type != at::kFloat && type != at::kDouble && type != at::kBFloat16) return false;
  const bool has_first = is_adam(kind) || kind == UpdateKind::Momentum;
  for (const at::Tensor* tensor :
       {&part.value, &part.low, &part.first_moment, &part.second_moment}) {
    const bool is_used = tensor == &part.first_moment    ? has_first
                         : tensor == &part.second_moment ? is_adam(kind)
                                                         : tensor->defined();
    if (!is_used) continue;
    if (!tensor->defined() || !tensor->is_cpu() || !tensor->is_contiguous() ||
        tensor->numel() != part.value.numel())
      return false;
  }
  if (has_first && part.first_moment.scalar_type() != moment) return false;
  if (is_adam(kind) && part.second_moment.scalar_type() != moment) return false;
  if (part.rows.defined() && !part.rows.is_cpu()) return false;
  if (!part.grad.defined()) return true;
  const at::ScalarType grad = part.grad.scalar_type();
  return part.grad.is_cpu() &&
         (grad == acc || (acc == at::kFloat && (grad == at::kBFloat16 || grad == at::kHalf)));
}

template <class Acc>
TileUpdate<Acc> update_of(const UpdatePart& part, UpdateKind kind) {
  namespace host = host_update;
  if constexpr (std::is_same_v<Acc, double>) {
    return of_kind<Acc>(kind, host::double_replace, host::double_sgd, host::double_momentum,
                        host::double_adam);
  } else if (part.low.defined()) {
    return of_kind<Acc>(kind, host::split_replace, host::split_sgd, host::split_momentum,
                        host::split_adam);
  } else if (part.value.scalar_type() == at::kBFloat16) {
    return of_kind<Acc>(kind, host::bfloat16_replace, host::bfloat16_sgd, host::bfloat16_momentum,
                        host::bfloat16_adam);
  } else {
    return of_kind<Acc>(kind, host::float_replace, host::float_sgd, host::float_momentum,
                        host::float_adam);
  }
}

template <class Acc>
HostPart<Acc> host_part(UpdatePart& part, const UpdateRule& rule, std::vector<at::Tensor>& held) {
  sum_up_rows(part);
  HostPart<Acc> to;
  to.at.value = part.value.data_ptr();
  to.size.value = part.value.element_size();
  if (part.low.defined()) to.at.low = part.low.data_ptr(), to.size.low = 2;
  if (part.grad.defined()) {
    held.push_back(part.grad.contiguous());
    if (held.back().scalar_type() == at::kHalf) held.back() = held.back().to(at::kFloat);
    to.grad = held.back().const_data_ptr();
    to.size.grad = held.back().element_size();
  }
  if (is_adam(rule.kind) || rule.kind == UpdateKind::Momentum) {
    to.at.first_moment = part.first_moment.data_ptr();
    to.size.moment = part.first_moment.element_size();
  }
  if (is_adam(rule.kind)) to.at.second_moment = part.second_moment.data_ptr();
  to.count = part.value.numel();
  to.first_element = part.first_element;
  to.parameter = part.parameter;
  to.update = update_of<Acc>(part, rule.kind);
  const auto steps = static_cast<double>(part.steps);
  to.rule = {static_cast<Acc>(rule.lr),
             static_cast<Acc>(rule.momentum),
             static_cast<Acc>(rule.beta1),
             static_cast<Acc>(rule.beta2),
             static_cast<Acc>(1 - rule.beta1),
             static_cast<Acc>(1 - rule.beta2),
             static_cast<Acc>(rule.eps),
             static_cast<Acc>(rule.weight_decay),
             rule.kind == UpdateKind::AdamW,
             static_cast<Acc>(rule.lr / (1 - std::pow(rule.beta1, steps))),
             static_cast<Acc>(1 / std::sqrt(1 - std::pow(rule.beta2, steps)))};
  return to;
}

}  // namespace

void fused_update_cpu(std::vector<UpdatePart>& parts, const UpdateRule& rule,
                      const UpdateNoise& noise) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> held;
  std::vector<HostPart<float>> floats;
  std::vector<HostPart<double>> doubles;
  std::vector<size_t> others;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].value.numel() == 0) continue;
    if (rule.noise_variance > 0 || !host_kernel_takes(parts[i], rule.kind)) {
      others.push_back(i);
    } else if (parts[i].value.scalar_type() == at::kDouble) {
      doubles.push_back(host_part<double>(parts[i], rule, held));
    } else {
      floats.push_back(host_part<float>(parts[i], rule, held));
    }
  }
  if (!floats.empty()) work_on_all(floats, noise);
  if (!doubles.empty()) work_on_all(doubles, noise);
  if (others.empty()) return;
  std::vector<UpdatePart> rest;
  for (const size_t i : others) rest.push_back(parts[i]);
  fused_update_ref(rest, rule, noise);
  for (size_t i = 0; i < rest.size(); ++i) parts[others[i]] = std::move(rest[i]);
}

}  // namespace moonshard::kernels
