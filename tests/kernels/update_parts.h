// Parts to update, in all formats, for the tests of fused_update.
#pragma once

#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "kernels/fused_update/fused_update.h"
#include "kernels/split_float/split_float.h"

namespace moonshard::kernels {

struct Sources {
  std::optional<at::ScalarType> grad, rows;
  bool units = false;  ///< rows have a factor for each 128 elements of the parameter
};

inline constexpr UpdateKind kKinds[] = {UpdateKind::Sgd, UpdateKind::Momentum, UpdateKind::Adam,
                                        UpdateKind::AdamW};

/// Of the second of several rows nothing may be seen.
inline UpdatePart make_part(at::ScalarType type, UpdateKind kind, const Sources& from,
                            int64_t count, int64_t num_rows) {
  UpdatePart part;
  part.value = at::randn({count}, type);
  if (from.grad) part.grad = at::randn({count}, *from.grad);
  if (from.rows) {
    part.rows = at::randn({num_rows, count}, *from.rows);
    part.row_factors = at::rand({num_rows}) + 0.5;
    if (num_rows > 1) {
      part.rows[1].fill_(INFINITY);
      part.row_factors[1] = 0;
    }
  }
  const bool adam = kind == UpdateKind::Adam || kind == UpdateKind::AdamW;
  if (kind == UpdateKind::Momentum)
    part.first_moment = at::randn({count}, type == at::kDouble ? at::kDouble : at::kFloat);
  if (adam) part.first_moment = at::randn({count}, type);
  if (adam) part.second_moment = at::rand({count}, type) + 0.1;
  part.steps = 3;
  part.parameter = static_cast<uint32_t>(count);
  part.first_element = count % 2 == 0 ? 64 : 13;
  if (from.units) {
    const int64_t units = (part.first_element + count + kUnitElements - 1) / kUnitElements;
    part.row_factors = part.row_factors.unsqueeze(1) * at::rand({num_rows, units}).add(0.5);
  }
  return part;
}

inline std::vector<UpdatePart> make_parts(at::ScalarType type, UpdateKind kind,
                                          const Sources& from) {
  std::vector<UpdatePart> parts;
  for (const int64_t count : {1, 7, 64, 5000, 9001})
    parts.push_back(make_part(type, kind, from, count, 3));
  return parts;
}

/// The same parts with float32 values in halves.
inline std::vector<UpdatePart> in_halves(std::vector<UpdatePart> parts) {
  for (UpdatePart& part : parts) {
    const at::Tensor whole = part.value;
    part.value = at::empty(whole.sizes(), at::kBFloat16);
    part.low = at::empty(whole.sizes(), at::kShort);
    split_float(whole, part.value, part.low);
  }
  return parts;
}

/// A part's values, whatever they are kept in.
inline at::Tensor value_of(const UpdatePart& part) {
  return part.low.defined() ? joined_float(part.value, part.low) : part.value;
}

inline std::vector<UpdatePart> copied(const std::vector<UpdatePart>& parts, c10::Device device) {
  std::vector<UpdatePart> copies = parts;
  for (UpdatePart& part : copies) {
    for (at::Tensor* tensor : {&part.value, &part.low, &part.grad, &part.rows, &part.row_factors,
                               &part.first_moment, &part.second_moment})
      if (tensor->defined()) *tensor = tensor->to(device, tensor->scalar_type(), false, true);
  }
  return copies;
}

inline UpdateRule rule_of(UpdateKind kind) {
  UpdateRule rule;
  rule.kind = kind;
  rule.lr = 0.05;
  rule.momentum = 0.9;
  rule.weight_decay = 0.2;
  return rule;
}

}  // namespace moonshard::kernels
