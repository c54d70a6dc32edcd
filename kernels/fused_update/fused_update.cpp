#include "kernels/fused_update/fused_update.h"

#include <ATen/ATen.h>

#include <cmath>
#include <optional>

#include "kernels/common/choice.h"
#include "kernels/common/cuda_library.h"
#include "kernels/fused_update/fused_update_cpu.h"
#include "runtime/base/check.h"

namespace moonshard::kernels {
namespace {

constexpr const char* kName = "fused_update";

UpdateFormat format_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return UpdateFormat::None;
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return UpdateFormat::Float;
    case at::kDouble:
      return UpdateFormat::Double;
    case at::kBFloat16:
      return UpdateFormat::Bfloat16;
    case at::kHalf:
      return UpdateFormat::Half;
    default:
      return UpdateFormat::None;
  }
}

// Of values in memory.
UpdateFormat value_format(const UpdatePart& part) {
  return part.low.defined() ? UpdateFormat::Split : format_of(part.value);
}

// Where the last factor ends, from the first: rows of units may lie apart.
int64_t reach_of(const at::Tensor& row_factors) {
  if (row_factors.dim() == 1) return row_factors.numel();
  return row_factors.size(0) * std::max(row_factors.stride(0), row_factors.size(1));
}

void check_part(const UpdatePart& part) {
  const int64_t count = part.value.numel();
  MS_CHECK(
      !part.low.defined() || (part.value.scalar_type() == at::kBFloat16 &&
                              part.low.scalar_type() == at::kShort && part.low.numel() == count),
      "fused_update: expected halves in bfloat16 and int16 of {} numbers, got {} and {} {}", count,
      c10::toString(part.value.scalar_type()), c10::str(part.low.sizes()),
      c10::toString(part.low.scalar_type()));
  MS_CHECK(format_of(part.value) != UpdateFormat::None,
           "fused_update: expected float values, got {}", c10::toString(part.value.scalar_type()));
  MS_CHECK(!part.grad.defined() || part.grad.numel() == count,
           "fused_update: expected a gradient of {} numbers, got {}", count,
           c10::str(part.grad.sizes()));
  MS_CHECK(!part.rows.defined() || (part.row_factors.defined() && part.row_factors.dim() >= 1 &&
                                    part.row_factors.dim() <= 2 && part.rows.dim() >= 1 &&
                                    part.rows.size(0) == part.row_factors.size(0) &&
                                    part.rows.numel() == count * part.rows.size(0)),
           "fused_update: expected rows [B, {}] and factors [B] or [B, units], got {} and {}",
           count, c10::str(part.rows.sizes()),
           part.row_factors.defined() ? c10::str(part.row_factors.sizes()) : std::string("none"));
  MS_CHECK(!part.rows.defined() || part.row_factors.dim() == 1 ||
               part.row_factors.size(1) * kUnitElements >= part.first_element + count,
           "fused_update: expected a factor for each {} of {} elements, got {}", kUnitElements,
           part.first_element + count, c10::str(part.row_factors.sizes()));
  constexpr int64_t kMostFactors = (int64_t{1} << 32) - 1;
  MS_CHECK(!part.rows.defined() || reach_of(part.row_factors) <= kMostFactors,
           "fused_update: expected at most {} factors, got {} of stride {}", kMostFactors,
           c10::str(part.row_factors.sizes()), part.row_factors.stride(0));
  MS_CHECK(part.first_element >= 0, "fused_update: expected first_element >= 0, got {}",
           part.first_element);
}

// Whether the kernel takes the part. Other parts use the reference.
bool kernel_takes(const UpdatePart& part, UpdateKind kind) {
  if (!kernel_runs(kName, part.value)) return false;
  const at::ScalarType type = part.low.defined() ? at::kFloat : part.value.scalar_type();
  const at::ScalarType sum = type == at::kDouble ? at::kDouble : at::kFloat;
  if (type == at::kHalf) {
    note_fallback(kName, "values in float16");
    return false;
  }
  if (!part.value.is_contiguous() || (part.low.defined() && !part.low.is_contiguous())) {
    note_fallback(kName, "values that are not contiguous");
    return false;
  }
  const bool has_moments = kind != UpdateKind::Sgd && kind != UpdateKind::Replace;
  if (has_moments &&
      part.first_moment.scalar_type() != (kind == UpdateKind::Momentum ? sum : type)) {
    note_fallback(kName, "moments in another format than the values'");
    return false;
  }
  for (const at::Tensor* tensor : {&part.grad, &part.rows}) {
    if (!tensor->defined()) continue;
    if (tensor->device() == part.value.device() && format_of(*tensor) != UpdateFormat::None)
      continue;
    note_fallback(kName, "gradients in another place or format");
    return false;
  }
  return true;
}

// Addresses for the kernel. `held` owns copies that had to be made.
RawUpdatePart raw(const UpdatePart& part, const UpdateRule& rule, std::vector<at::Tensor>& held) {
  const auto contiguous = [&](const at::Tensor& tensor) -> const void* {
    if (!tensor.defined()) return nullptr;
    held.push_back(tensor.contiguous());
    return held.back().const_data_ptr();
  };
  RawUpdatePart to;
  to.value = part.value.data_ptr();
  if (part.low.defined()) to.low = part.low.data_ptr();
  to.grad = contiguous(part.grad);
  to.grad_format = format_of(part.grad);
  if (part.rows.defined() && part.rows.size(0) > 0) {
    at::Tensor rows = part.rows.flatten(1);
    if (rows.stride(1) != 1 && rows.size(1) > 1) rows = rows.contiguous();
    held.push_back(rows);
    to.rows = rows.const_data_ptr();
    to.row_stride = rows.stride(0);
    to.num_rows = static_cast<int32_t>(rows.size(0));
    to.row_format = format_of(rows);
    at::Tensor factors = part.row_factors.to(part.value.device(), at::kFloat);
    // Units of layers that were kept together lie side by side.
    if (factors.dim() == 1 || factors.stride(1) != 1) factors = factors.contiguous();
    held.push_back(factors);
    to.row_factors = factors.const_data_ptr<float>();
    to.factor_stride = static_cast<uint32_t>(factors.stride(0));
    if (factors.dim() == 2) to.units_per_row = static_cast<uint32_t>(factors.size(1));
  }
  if (part.first_moment.defined()) to.first_moment = part.first_moment.data_ptr();
  if (part.second_moment.defined()) to.second_moment = part.second_moment.data_ptr();
  to.count = part.value.numel();
  to.first_element = part.first_element;
  to.parameter = part.parameter;
  const auto steps = static_cast<double>(part.steps);
  to.correction1 = 1 - std::pow(rule.beta1, steps);
  to.correction2 = 1 - std::pow(rule.beta2, steps);
  return to;
}

}  // namespace

void fused_update(std::vector<UpdatePart>& parts, const UpdateRule& rule,
                  const UpdateNoise& noise) {
  const at::NoGradGuard no_grad;
  std::vector<size_t> by_reference;
  std::vector<at::Tensor> held;
  constexpr size_t kFormats = 5;
  std::vector<RawUpdatePart> by_kernel[kFormats];  // by the values' format
  std::optional<LaunchStream> stream;
  for (size_t i = 0; i < parts.size(); ++i) {
    const UpdatePart& part = parts[i];
    check_part(part);
    if (part.value.numel() == 0) continue;
    if (rule.noise_variance > 0 || !kernel_takes(part, rule.kind)) {
      by_reference.push_back(i);
      continue;
    }
    if (!stream) stream.emplace(part.value);
    by_kernel[static_cast<size_t>(value_format(part))].push_back(raw(part, rule, held));
  }
  for (size_t format = 0; format < kFormats; ++format) {
    if (by_kernel[format].empty()) continue;
    RawUpdateRule told;
    told.kind = rule.kind;
    told.value_format = static_cast<UpdateFormat>(format);
    told.lr = rule.lr, told.momentum = rule.momentum, told.beta1 = rule.beta1;
    told.beta2 = rule.beta2, told.eps = rule.eps, told.decay = rule.weight_decay;
    told.noise_std = noise.std, told.denominator = noise.denominator;
    told.noise_key = noise.key, told.noise_step = noise.step;
    told.is_secret = noise.secret != nullptr;
    if (told.is_secret) told.secret_key = *noise.secret;
    cuda().launch_fused_update(by_kernel[format].data(), static_cast<int>(by_kernel[format].size()),
                               told, *stream);
  }
  if (by_reference.empty()) return;
  std::vector<UpdatePart> rest;
  for (const size_t i : by_reference) rest.push_back(parts[i]);
  fused_update_cpu(rest, rule, noise);
  for (size_t i = 0; i < rest.size(); ++i) parts[by_reference[i]] = std::move(rest[i]);
}

void take_gradients(std::vector<UpdatePart>& parts) {
  UpdateRule replace;
  replace.kind = UpdateKind::Replace;
  fused_update(parts, replace, {});
}

at::Tensor add_weighted_rows(const at::Tensor& grad, const at::Tensor& rows,
                             const at::Tensor& row_factors, int64_t first_element) {
  const at::NoGradGuard no_grad;
  const bool wide = grad.defined() ? grad.scalar_type() == at::kFloat && grad.is_contiguous()
                                   : rows.scalar_type() != at::kDouble;
  if (!wide || rows.numel() == 0 || !kernel_runs(kName, rows))
    return add_weighted_rows_ref(grad, rows, row_factors, first_element);
  std::vector<UpdatePart> one(1);
  one[0].value =
      grad.defined() ? grad : at::empty(rows.sizes().slice(1), rows.options().dtype(at::kFloat));
  one[0].grad = grad;
  one[0].rows = rows;
  one[0].row_factors = row_factors;
  one[0].first_element = first_element;
  take_gradients(one);
  return one[0].value;
}

void sum_up_rows(UpdatePart& part) {
  if (!part.rows.defined()) return;
  if (!part.grad.defined() && part.value.scalar_type() == at::kDouble)
    part.grad = at::zeros_like(part.value);
  part.grad = add_weighted_rows(part.grad, part.rows, part.row_factors, part.first_element)
                  .view(part.value.sizes());
  part.rows = part.row_factors = at::Tensor();
}

}  // namespace moonshard::kernels
