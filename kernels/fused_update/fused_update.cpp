#include "kernels/fused_update/fused_update.h"

#include <ATen/ATen.h>

#include <cmath>
#include <optional>

#include "kernels/clipped_sum/clipped_sum.h"
#include "kernels/clipped_update/clipped_update.h"
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
  MS_CHECK(!part.rows.defined() ||
               (part.row_factors.defined() && part.row_factors.dim() == 1 && part.rows.dim() >= 1 &&
                part.rows.size(0) == part.row_factors.size(0) &&
                part.rows.numel() == count * part.rows.size(0)),
           "fused_update: expected rows [B, {}] and factors [B], got {} and {}", count,
           c10::str(part.rows.sizes()),
           part.row_factors.defined() ? c10::str(part.row_factors.sizes()) : std::string("none"));
  MS_CHECK(
      !part.product_a.defined() || (part.product_a.dim() == 3 && part.product_g.dim() == 3 &&
                                    part.product_factors.defined() &&
                                    part.product_g.size(2) * part.product_a.size(2) == count),
      "fused_update: expected a product of {} numbers from [B, T, i] and [B, T, o], got {} and "
      "{}",
      count, c10::str(part.product_a.sizes()),
      part.product_g.defined() ? c10::str(part.product_g.sizes()) : std::string("none"));
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
    to.row_factors =
        static_cast<const float*>(contiguous(part.row_factors.to(part.value.device(), at::kFloat)));
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

RawUpdateRule raw(const UpdateRule& rule, const UpdateNoise& noise, UpdateFormat format) {
  RawUpdateRule told;
  told.kind = rule.kind;
  told.value_format = format;
  told.lr = rule.lr, told.momentum = rule.momentum, told.beta1 = rule.beta1;
  told.beta2 = rule.beta2, told.eps = rule.eps, told.decay = rule.weight_decay;
  told.noise_std = noise.std, told.denominator = noise.denominator;
  told.noise_key = noise.key, told.noise_step = noise.step;
  told.is_secret = noise.secret != nullptr;
  if (told.is_secret) told.secret_key = *noise.secret;
  return told;
}

// Whether the product's kernel updates the part.
bool by_product(const UpdatePart& part, const UpdateRule& rule, const UpdateNoise& noise) {
  const bool grad_fits =
      !part.grad.defined() || (part.grad.scalar_type() == at::kFloat && part.grad.is_contiguous());
  return part.product_a.defined() && !part.rows.defined() && part.first_element == 0 && grad_fits &&
         clipped_update_takes(raw(rule, noise, value_format(part))) &&
         kernel_takes(part, rule.kind) && clipped_update_supports({part.product_a, part.product_g});
}

// Updates the parts among them that clipped_update takes, which leave the list of places.
void update_by_products(const std::vector<UpdatePart>& parts, const UpdateRule& rule,
                        const UpdateNoise& noise, std::vector<size_t>& places) {
  // One launch has one format, and one list of factors.
  const auto alike = [&](const UpdatePart& x, const UpdatePart& y) {
    return value_format(x) == value_format(y) &&
           x.product_factors.data_ptr() == y.product_factors.data_ptr() &&
           x.product_g.size(0) == y.product_g.size(0);
  };
  std::vector<size_t> left, waiting;
  for (const size_t i : places) (by_product(parts[i], rule, noise) ? waiting : left).push_back(i);
  while (!waiting.empty()) {
    const UpdatePart& first = parts[waiting.front()];
    std::vector<size_t> others;
    std::vector<ClippedUpdateProblem> told;
    std::vector<at::Tensor> held;
    for (const size_t i : waiting) {
      if (!alike(first, parts[i])) {
        others.push_back(i);
        continue;
      }
      told.push_back(
          {operands_of({parts[i].product_a, parts[i].product_g}), raw(parts[i], rule, held)});
    }
    const LaunchStream stream(first.value);
    const at::Tensor scratch =
        at::empty({cuda().clipped_update_scratch()}, first.value.options().dtype(at::kFloat));
    const at::Tensor factors = first.product_factors.to(at::kFloat).contiguous();
    cuda().launch_clipped_update(told.data(), static_cast<int>(told.size()),
                                 factors.const_data_ptr<float>(),
                                 raw(rule, noise, value_format(first)), GemmSchedule::Chosen,
                                 scratch.data_ptr<float>(), stream);
    waiting = std::move(others);
  }
  places = std::move(left);
}

}  // namespace

bool update_takes_products(const UpdatePart& part, const UpdateRule& rule,
                           const UpdateNoise& noise) {
  return clipped_update_takes(raw(rule, noise, value_format(part))) &&
         kernel_runs("clipped_update", part.value, Needs::Hopper);
}

void form_product(UpdatePart& part) {
  if (!part.product_a.defined()) return;
  const SampleProblem problem{part.product_a, part.product_g};
  const bool goes_on = part.grad.defined();
  if (!goes_on) {
    const auto type = problem.g.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    part.grad = at::empty({problem.g.size(2), problem.a.size(2)}, problem.g.options().dtype(type));
  }
  std::vector<at::Tensor> sum{part.grad.view({problem.g.size(2), problem.a.size(2)})};
  clipped_sum({problem}, part.product_factors.to(at::kFloat).contiguous(), sum, goes_on);
  part.product_a = part.product_g = part.product_factors = at::Tensor();
}

void fused_update(std::vector<UpdatePart>& parts, const UpdateRule& rule,
                  const UpdateNoise& noise) {
  const at::NoGradGuard no_grad;
  std::vector<size_t> places;
  for (size_t i = 0; i < parts.size(); ++i) {
    check_part(parts[i]);
    if (parts[i].value.numel() > 0) places.push_back(i);
  }
  update_by_products(parts, rule, noise, places);
  std::vector<size_t> by_reference;
  std::vector<at::Tensor> held;
  constexpr size_t kFormats = 5;
  std::vector<RawUpdatePart> by_kernel[kFormats];  // by the values' format
  std::optional<LaunchStream> stream;
  for (const size_t i : places) {
    form_product(parts[i]);
    const UpdatePart& part = parts[i];
    if (!kernel_takes(part, rule.kind)) {
      by_reference.push_back(i);
      continue;
    }
    if (!stream) stream.emplace(part.value);
    by_kernel[static_cast<size_t>(value_format(part))].push_back(raw(part, rule, held));
  }
  for (size_t format = 0; format < kFormats; ++format) {
    if (by_kernel[format].empty()) continue;
    cuda().launch_fused_update(by_kernel[format].data(), static_cast<int>(by_kernel[format].size()),
                               raw(rule, noise, static_cast<UpdateFormat>(format)), *stream);
  }
  if (by_reference.empty()) return;
  std::vector<UpdatePart> rest;
  for (const size_t i : by_reference) rest.push_back(parts[i]);
  fused_update_cpu(rest, rule, noise);
  for (size_t i = 0; i < rest.size(); ++i) parts[by_reference[i]] = std::move(rest[i]);
}

at::Tensor add_weighted_rows(const at::Tensor& grad, const at::Tensor& rows,
                             const at::Tensor& row_factors) {
  const at::NoGradGuard no_grad;
  const bool wide = grad.defined() ? grad.scalar_type() == at::kFloat && grad.is_contiguous()
                                   : rows.scalar_type() != at::kDouble;
  if (!wide || rows.numel() == 0 || !kernel_runs(kName, rows))
    return add_weighted_rows_ref(grad, rows, row_factors);
  std::vector<UpdatePart> one(1);
  one[0].value =
      grad.defined() ? grad : at::empty(rows.sizes().slice(1), rows.options().dtype(at::kFloat));
  one[0].grad = grad;
  one[0].rows = rows;
  one[0].row_factors = row_factors;
  UpdateRule replace;
  replace.kind = UpdateKind::Replace;
  fused_update(one, replace, {});
  return one[0].value;
}

}  // namespace moonshard::kernels
