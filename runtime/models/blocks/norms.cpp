#include "runtime/models/blocks/norms.h"

#include "kernels/layer_norm/layer_norm.h"
#include "kernels/rms_norm/rms_norm.h"
#include "runtime/models/blocks/layer_function.h"
#include "runtime/models/blocks/param_ops.h"

namespace moonshard::models {
namespace {

using namespace layer_function;

// What the normalised value is multiplied by, as wide as its parts; not yet rounded.
at::Tensor scale_of(const at::Tensor& weight, at::ScalarType type, NormScale scale) {
  const at::Tensor wide = weight.to(at::promote_types(weight.scalar_type(), statistics_type(type)));
  return scale == NormScale::Weight ? wide : wide + 1;
}

// As the kernels take it: a weight of its own dtype, or the sum.
at::Tensor kernel_scale(const ParamLayer& layer, at::ScalarType type, NormScale scale) {
  const at::Tensor& weight = layer.weight->value;
  return scale == NormScale::Weight ? weight : scale_of(weight, type, scale);
}

// ---- plain: a chain of operations --------------------------------------------------------------

// Root-mean-square and mean-variance normalisation differ only in whether the mean is taken out.
// The input is what is saved: the residual stream, which costs nothing more, and from which the
// normalised values come back unrounded.
struct NormFunction : Function<NormFunction> {
  static at::Tensor normalised(const at::Tensor& x, const at::Tensor& inverse_spread,
                               bool centred) {
    const at::Tensor wide = x.to(inverse_spread.scalar_type());
    return (centred ? wide - wide.mean(-1, true) : wide) * inverse_spread;
  }
  static at::Tensor weight_of(const ParamLayer& layer, at::ScalarType type, NormScale scale) {
    return scale_of(layer.weight->value, type, scale).to(type).to(statistics_type(type));
  }
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor&,
                            ParamLayer* layer, double eps, bool centred, NormScale scale) {
    remember_layer(context, layer);
    context->saved_data["scale"] = static_cast<int64_t>(scale);
    const auto type = x.scalar_type(), wide = statistics_type(type);
    const at::Tensor y = x.to(wide);
    const at::Tensor spread =
        centred ? y.var(-1, /*unbiased=*/false, /*keepdim=*/true) : y.square().mean(-1, true);
    const at::Tensor inverse_spread = at::rsqrt(spread + eps);
    context->save_for_backward({x, inverse_spread});
    context->saved_data["centred"] = centred;
    at::Tensor scaled =
        normalised(x, inverse_spread, centred).to(type).to(wide) * weight_of(*layer, type, scale);
    if (const auto bias = bias_of(*layer, type)) scaled = scaled + bias->to(wide);
    return scaled.to(type);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ParamLayer& layer = remembered_layer(context);
    const BackwardUse use(layer);
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &inverse_spread = saved[1];
    const bool centred = context->saved_data["centred"].toBool();
    const auto scale = static_cast<NormScale>(context->saved_data["scale"].toInt());
    const at::Tensor g = gradients[0];
    const at::Tensor direction = normalised(x, inverse_spread, centred);
    at::Tensor x_gradient;
    if (context->needs_input_grad(0)) {
      const at::Tensor scaled =
          g.to(inverse_spread.scalar_type()) * weight_of(layer, x.scalar_type(), scale);
      at::Tensor across = scaled - direction * (scaled * direction).mean(-1, true);
      if (centred) across -= scaled.mean(-1, true);
      x_gradient = (inverse_spread * across).to(g.scalar_type());
    }
    hand_over(layer, direction.to(x.scalar_type()), g);
    return {x_gradient, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// Seam without a consumer: LibTorch's own operations on the parameters' own values.
at::Tensor plain_norm(const at::Tensor& x, const ParamLayer& layer, double eps, bool centred,
                      NormScale scale = NormScale::Weight) {
  const auto type = x.scalar_type(), wide = statistics_type(type);
  const at::Tensor y = x.to(wide);
  const at::Tensor spread = centred ? y.var(-1, /*unbiased=*/false, /*keepdim=*/true)
                                    : y.square().mean(-1, /*keepdim=*/true);
  const at::Tensor offset = centred ? y - y.mean(-1, true) : y;
  const at::Tensor exact = offset / (spread + eps).sqrt();
  // Rounded as in the fused form, without rounding the gradient on its way back.
  const auto in_type = [&](const at::Tensor& t) {
    return (t + (t.detach().to(type).to(t.scalar_type()) - t.detach())).to(wide);
  };
  at::Tensor scaled = in_type(exact) * in_type(scale_of(layer.weight->value, type, scale));
  if (layer.bias != nullptr) scaled = scaled + rounded(*layer.bias, type).to(wide);
  return scaled.to(type);
}

// ---- fused -------------------------------------------------------------------------------------

// Kept for backward: the stream, which others keep anyway, and one number per row. Both outputs
// belong to one node, so that the gradients that reach the stream on both ways meet in its kernel.
struct AddRmsNormFunction : Function<AddRmsNormFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const at::Tensor& delta, const at::Tensor&, bool has_delta,
                               ParamLayer* layer, double eps, NormScale scale) {
    remember_layer(context, layer);
    context->saved_data["scale"] = static_cast<int64_t>(scale);
    context->set_materialize_grads(false);
    context->saved_data["has_delta"] = has_delta;
    const kernels::AddedNorm result = kernels::add_rms_norm(
        x, has_delta ? delta : at::Tensor(), kernel_scale(*layer, x.scalar_type(), scale), eps);
    context->save_for_backward({result.y, result.inverse_spread});
    return {result.y, result.n};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ParamLayer& layer = remembered_layer(context);
    const BackwardUse use(layer);
    const bool has_delta = context->saved_data["has_delta"].toBool();
    const at::Tensor &dy = gradients[0], &dn = gradients[1];
    at::Tensor input = dy;
    if (dn.defined()) {
      const auto saved = context->get_saved_variables();
      const bool consumed = layer.seam->consumer != nullptr && layer.trainable();
      kernels::RmsNormWants wants;
      wants.input = context->needs_input_grad(0) || (has_delta && context->needs_input_grad(1));
      wants.weight_rows = consumed && layer.seam->consumer->takes_rows(layer);
      wants.normalised = consumed && !wants.weight_rows;
      const auto scale = static_cast<NormScale>(context->saved_data["scale"].toInt());
      const auto found = kernels::rms_norm_backward(
          dn, dy, saved[0], saved[1], kernel_scale(layer, dn.scalar_type(), scale), wants);
      input = found.input;
      if (wants.weight_rows) {
        hand_over_rows(layer, found.weight_rows, {});
      } else {
        hand_over(layer, found.normalised, dn);
      }
    }
    return {input,        has_delta ? input : at::Tensor(),
            at::Tensor(), at::Tensor(),
            at::Tensor(), at::Tensor(),
            at::Tensor()};
  }
};

// Layer norm with its surroundings (kernels/layer_norm). Kept for backward: the stream and two
// numbers per row, and, of a gated sum, the branch, which its gate's gradient needs. Tensors that
// are left out have the seam's scalar in their place.
struct LayerNormFunction : Function<LayerNormFunction> {
  static constexpr int64_t kGated = 1, kModulated = 2;

  static kernels::NormSurroundings around(int64_t parts, const variable_list& t,
                                          const ParamLayer* layer) {
    kernels::NormSurroundings around;
    if (parts & kGated) around.branch = t[0], around.gate = t[1];
    if (parts & kModulated) around.scale = t[2], around.shift = t[3];
    if (layer != nullptr) around.weight = layer->weight->value, around.bias = layer->bias->value;
    return around;
  }
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const at::Tensor& branch, const at::Tensor& gate,
                               const at::Tensor& scale, const at::Tensor& shift, const at::Tensor&,
                               int64_t parts, ParamLayer* layer, double eps) {
    remember_layer(context, layer);
    context->set_materialize_grads(false);
    context->saved_data["parts"] = parts;
    const kernels::SurroundedNorm result =
        kernels::layer_norm_forward(x, around(parts, {branch, gate, scale, shift}, layer), eps);
    context->save_for_backward(
        {branch, gate, scale, shift, result.y, result.mean, result.inverse_spread});
    return {result.y, result.result};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ParamLayer* layer = remembered_layer_or_null(context);
    std::optional<BackwardUse> use;
    if (layer != nullptr) use.emplace(*layer);
    const int64_t parts = context->saved_data["parts"].toInt();
    const auto saved = context->get_saved_variables();
    const at::Tensor& dy = gradients[0];
    const at::Tensor d_result = gradients[1].defined() ? gradients[1] : at::zeros_like(saved[4]);
    const bool consumed =
        layer != nullptr && layer->seam->consumer != nullptr && layer->trainable();
    const kernels::NormSurroundings surroundings = around(parts, saved, layer);
    // Behind a modulation the kernel's rows are made of unrounded gradients of n. In 16 bits that
    // is another number than the (a, g) of the seam give, so those are handed over.
    const bool rows_are_the_seams =
        !surroundings.scale.defined() || d_result.scalar_type() == at::kFloat;
    kernels::LayerNormWants wants;
    wants.parameter_rows =
        consumed && rows_are_the_seams && layer->seam->consumer->takes_rows(*layer);
    wants.normalised = consumed && !wants.parameter_rows;
    const auto found =
        kernels::layer_norm_backward(d_result, dy, {saved[4], at::Tensor(), saved[5], saved[6]},
                                     surroundings, wants, /*overwrite=*/true);
    if (wants.parameter_rows) {
      hand_over_rows(*layer, layer->weight->trainable ? found.weight_rows : at::Tensor(),
                     layer->bias->trainable ? found.bias_rows : at::Tensor());
    } else if (consumed) {
      hand_over(*layer, found.normalised, found.n);
    }
    return {found.x,      found.branch, found.gate,   found.scale, found.shift,
            at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

ModulatedStream fused_layer_norm(const Seam& seam, const GatedStream& stream, ParamLayer* layer,
                                 const at::Tensor& shift, const at::Tensor& scale, double eps) {
  const bool gated = stream.branch.defined(), modulated = scale.defined();
  const int64_t parts =
      (gated ? LayerNormFunction::kGated : 0) | (modulated ? LayerNormFunction::kModulated : 0);
  const auto or_nothing = [&](const at::Tensor& t) { return t.defined() ? t : seam.no_anchor; };
  std::optional<profile::TraceZone> zone;
  if (layer != nullptr) zone.emplace(layer->name);
  if (layer != nullptr) before_forward(*layer);
  const variable_list both = LayerNormFunction::apply(
      stream.x, or_nothing(stream.branch), or_nothing(stream.gate), or_nothing(scale),
      or_nothing(shift), layer != nullptr ? anchor_of(*layer) : seam.no_anchor, parts, layer, eps);
  if (layer != nullptr) after_forward(*layer, both[1]);
  return {both[0], both[1]};
}

}  // namespace

AddedStream rms_norm_of_sum(const at::Tensor& x, const at::Tensor& delta, ParamLayer& layer,
                            double eps, NormScale scale) {
  if (!layer.seam->plain_autograd && takes_fused_form(kernels::rms_norm_kernel_runs(x))) {
    const profile::TraceZone zone(layer.name);
    before_forward(layer);
    const bool has_delta = delta.defined();
    const variable_list both =
        AddRmsNormFunction::apply(x, has_delta ? delta : layer.seam->no_anchor, anchor_of(layer),
                                  has_delta, &layer, eps, scale);
    after_forward(layer, both[1]);
    return {both[0], both[1]};
  }
  const at::Tensor stream = delta.defined() ? x + delta : x;
  if (layer.seam->plain_autograd) return {stream, plain_norm(stream, layer, eps, false, scale)};
  return {stream, with_parameters(layer, [&] {
            return NormFunction::apply(stream, anchor_of(layer), &layer, eps, false, scale);
          })};
}

at::Tensor rms_norm(const at::Tensor& x, ParamLayer& layer, double eps, NormScale scale) {
  return rms_norm_of_sum(x, {}, layer, eps, scale).normed;
}

at::Tensor layer_norm(const at::Tensor& x, ParamLayer& layer, double eps) {
  if (layer.seam->plain_autograd) return plain_norm(x, layer, eps, true);
  if (layer_norm_is_fused(*layer.seam, x))
    return fused_layer_norm(*layer.seam, {x, {}, {}}, &layer, {}, {}, eps).modulated;
  return with_parameters(layer, [&] {
    return NormFunction::apply(x, anchor_of(layer), &layer, eps, true, NormScale::Weight);
  });
}

at::Tensor GatedStream::sum() const {
  return branch.defined() ? x + gate.unsqueeze(1) * branch : x;
}

GatedStream in_type(const GatedStream& stream, at::ScalarType type) {
  return stream.x.scalar_type() == type ? stream : GatedStream{stream.sum().to(type), {}, {}};
}

bool layer_norm_is_fused(const Seam& seam, const at::Tensor& x) {
  return !seam.plain_autograd && takes_fused_form(kernels::layer_norm_kernel_runs(x));
}

ModulatedStream modulated_layer_norm(const Seam& seam, const GatedStream& stream, ParamLayer* layer,
                                     const at::Tensor& shift, const at::Tensor& scale, double eps) {
  if (layer_norm_is_fused(seam, stream.x))
    return fused_layer_norm(seam, stream, layer, shift, scale, eps);
  const at::Tensor sum = stream.sum();
  const at::Tensor normed = layer != nullptr ? layer_norm(sum, *layer, eps)
                                             : at::layer_norm(sum, {sum.size(-1)}, {}, {}, eps);
  return {sum, normed * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)};
}

}  // namespace moonshard::models
