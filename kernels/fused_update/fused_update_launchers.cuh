// From the caller's parts to launches: parts of one kind of input go together, in tables of a fixed
// size. `Kernels` says which kernel is launched, and how many elements a block and a vector of it
// take.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/fused_update/fused_update_parts.cuh"

namespace moonshard::kernels {
namespace {

// Of a number; of one half of Split.
int64_t size_of(UpdateFormat format) {
  return format == UpdateFormat::Double ? 8 : format == UpdateFormat::Float ? 4 : 2;
}

// Whether so many elements at a time are at addresses that allow to move them at once, 16 bytes at
// most.
bool moves_in_vectors(const RawUpdatePart& part, const RawUpdateRule& rule, int64_t elements) {
  const auto fits = [&](const void* address, int64_t element_size) {
    const auto bytes = static_cast<uintptr_t>(std::min<int64_t>(elements * element_size, 16));
    return reinterpret_cast<uintptr_t>(address) % bytes == 0;  // null fits always
  };
  const int64_t value = size_of(rule.value_format);
  const bool wide = rule.kind == UpdateKind::Momentum || rule.value_format == UpdateFormat::Split;
  const int64_t first = wide && value == 2 ? 4 : value;
  const int64_t second = rule.value_format == UpdateFormat::Split ? 4 : value;
  return part.first_element % elements == 0 && fits(part.value, value) && fits(part.low, value) &&
         fits(part.grad, size_of(part.grad_format)) && fits(part.rows, size_of(part.row_format)) &&
         (part.num_rows < 2 || part.row_stride % elements == 0) && fits(part.first_moment, first) &&
         fits(part.second_moment, second);
}

Inputs inputs_of(const RawUpdatePart& part, const RawUpdateRule& rule) {
  if (rule.value_format == UpdateFormat::Double) return Inputs::Any;
  if (part.grad_format == UpdateFormat::Float && part.row_format == UpdateFormat::None)
    return Inputs::Grad;
  if (part.grad_format != UpdateFormat::None || part.num_rows == 0) return Inputs::Any;
  return part.row_format == UpdateFormat::Half       ? Inputs::HalfRows
         : part.row_format == UpdateFormat::Bfloat16 ? Inputs::Bfloat16Rows
         : part.row_format == UpdateFormat::Float    ? Inputs::FloatRows
                                                     : Inputs::Any;
}

// Blocks of a part when each takes so many elements, from multiples of them on.
inline int64_t blocks_of(const RawUpdatePart& part, int64_t aligned, int64_t per_block) {
  const int64_t first = part.first_element / aligned * aligned;
  return (part.first_element + part.count - first + per_block - 1) / per_block;
}

template <class Kernels, class Acc>
Table<Acc> table_of(const std::vector<const RawUpdatePart*>& parts, const RawUpdateRule& rule,
                    int& blocks) {
  Table<Acc> table{};
  table.num_parts = static_cast<int>(parts.size());
  table.decoupled = rule.kind == UpdateKind::AdamW;
  table.draws = rule.noise_std != 0;
  table.noise_key = rule.noise_key;
  table.noise_step = rule.noise_step;
  table.lr = static_cast<Acc>(rule.lr);
  table.momentum = static_cast<Acc>(rule.momentum);
  table.beta1 = static_cast<Acc>(rule.beta1);
  table.beta2 = static_cast<Acc>(rule.beta2);
  table.one_minus_beta1 = static_cast<Acc>(1 - rule.beta1);
  table.one_minus_beta2 = static_cast<Acc>(1 - rule.beta2);
  table.eps = static_cast<Acc>(rule.eps);
  table.decay = static_cast<Acc>(rule.decay);
  table.noise = static_cast<Acc>(rule.noise_std / rule.denominator);
  table.scale = static_cast<Acc>(1 / rule.denominator);
  if (rule.is_secret &&
      rule.noise_std != 0) {  // grids are powers of two: products with them are exact
    const auto grid = static_cast<Acc>(secure_grid(rule.noise_std));
    table.secret_key = rule.secret_key;
    table.inverse_grid = Acc(1) / grid;
    table.noise = static_cast<Acc>(float_at_least(rule.noise_std)) * table.inverse_grid;
    table.scale *= grid;
  }
  blocks = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const RawUpdatePart& from = *parts[i];
    Part<Acc>& part = table.part[i];
    part = {from.value,
            from.low,
            from.grad,
            from.rows,
            from.row_factors,
            from.first_moment,
            from.second_moment,
            from.count,
            from.row_stride,
            from.first_element,
            from.parameter,
            from.units_per_row,
            from.num_rows,
            blocks,
            from.factor_stride,
            from.grad_format,
            from.row_format,
            moves_in_vectors(from, rule, Kernels::kVector),
            static_cast<Acc>(rule.lr / from.correction1),
            static_cast<Acc>(1 / std::sqrt(from.correction2))};
    blocks += static_cast<int>(blocks_of(from, Kernels::kAligned, Kernels::kElementsPerBlock));
  }
  return table;
}

template <class Kernels, class Value, UpdateKind kind, Inputs inputs>
void launch_parts(const std::vector<const RawUpdatePart*>& parts, const RawUpdateRule& rule,
                  cudaStream_t stream) {
  using Acc = std::conditional_t<std::is_same_v<Value, double>, double, float>;
  int blocks = 0;
  const Table<Acc> table = table_of<Kernels, Acc>(parts, rule, blocks);
  Kernels::template run<Value, kind, inputs>(table, blocks, stream);
  check_launch("fused_update");
}

template <class Kernels, class Value, UpdateKind kind>
void launch_inputs(Inputs inputs, const std::vector<const RawUpdatePart*>& parts,
                   const RawUpdateRule& rule, cudaStream_t stream) {
  // Versions that nobody waits for are not built: Inputs::Any takes every input.
  if constexpr (!std::is_same_v<Value, double>) {
    switch (inputs) {
      case Inputs::Grad:
        return launch_parts<Kernels, Value, kind, Inputs::Grad>(parts, rule, stream);
      case Inputs::HalfRows:
        return launch_parts<Kernels, Value, kind, Inputs::HalfRows>(parts, rule, stream);
      case Inputs::Bfloat16Rows:
        if constexpr (Kernels::kAllRows)
          return launch_parts<Kernels, Value, kind, Inputs::Bfloat16Rows>(parts, rule, stream);
        break;
      case Inputs::FloatRows:
        return launch_parts<Kernels, Value, kind, Inputs::FloatRows>(parts, rule, stream);
      case Inputs::Any:
        break;
    }
  }
  launch_parts<Kernels, Value, kind, Inputs::Any>(parts, rule, stream);
}

template <class Kernels, class Value>
void launch_kind(Inputs inputs, const std::vector<const RawUpdatePart*>& parts,
                 const RawUpdateRule& rule, cudaStream_t stream) {
  switch (rule.kind) {
    case UpdateKind::Replace:
      if constexpr (Kernels::kReplaces)
        launch_inputs<Kernels, Value, UpdateKind::Replace>(inputs, parts, rule, stream);
      return;
    case UpdateKind::Sgd:
      return launch_inputs<Kernels, Value, UpdateKind::Sgd>(inputs, parts, rule, stream);
    case UpdateKind::Momentum:
      return launch_inputs<Kernels, Value, UpdateKind::Momentum>(inputs, parts, rule, stream);
    case UpdateKind::Adam:
    case UpdateKind::AdamW:
      return launch_inputs<Kernels, Value, UpdateKind::Adam>(inputs, parts, rule, stream);
  }
}

template <class Kernels>
void launch_all(const RawUpdatePart* parts, int num_parts, const RawUpdateRule& rule,
                void* cuda_stream) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream);
  for (const Inputs inputs :
       {Inputs::Grad, Inputs::HalfRows, Inputs::Bfloat16Rows, Inputs::FloatRows, Inputs::Any}) {
    std::vector<const RawUpdatePart*> alike;
    const auto launch = [&] {
      if (rule.value_format == UpdateFormat::Double) {
        launch_kind<Kernels, double>(inputs, alike, rule, stream);
      } else if (rule.value_format == UpdateFormat::Bfloat16) {
        launch_kind<Kernels, __nv_bfloat16>(inputs, alike, rule, stream);
      } else if (rule.value_format == UpdateFormat::Split) {
        launch_kind<Kernels, SplitFloat>(inputs, alike, rule, stream);
      } else {
        launch_kind<Kernels, float>(inputs, alike, rule, stream);
      }
      alike.clear();
    };
    for (int i = 0; i < num_parts; ++i) {
      if (parts[i].count == 0 || inputs_of(parts[i], rule) != inputs) continue;
      alike.push_back(&parts[i]);
      if (alike.size() == kPartsPerLaunch) launch();
    }
    if (!alike.empty()) launch();
  }
}

}  // namespace
}  // namespace moonshard::kernels
