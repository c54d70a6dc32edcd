#include "runtime/privacy/layer_rules.h"

#include <ATen/ATen.h>

#include "runtime/core/check.h"

namespace moonshard::privacy {
namespace {

using models::LayerKind;
using models::ParamLayer;

at::Tensor at_least_float(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

// [B, …, d] -> [B, T, d]; a 2-D input has one position.
at::Tensor as_positions(const at::Tensor& x) {
  return x.reshape({x.size(0), -1, x.size(-1)});
}

at::Tensor embedding_per_sample(const ParamLayer& layer, const at::Tensor& ids,
                                const at::Tensor& g) {
  const int64_t B = ids.size(0), V = layer.weight->value.size(0), d = g.size(-1);
  const at::Tensor rows_BT = ids.reshape({B, -1});
  const at::Tensor g_BTd = at_least_float(as_positions(g));
  // Each sample has its own V rows in one tall table; ids that repeat within a sample add up.
  const at::Tensor offset_B1 = at::arange(B, ids.options()).unsqueeze(1) * V;
  at::Tensor table = at::zeros({B * V, d}, g_BTd.options());
  table.index_add_(0, (rows_BT + offset_B1).flatten(), g_BTd.reshape({-1, d}));
  return table.view({B, V, d});
}

}  // namespace

LayerGradients per_sample_gradients(const ParamLayer& layer, const at::Tensor& a,
                                    const at::Tensor& g) {
  LayerGradients result;
  if (layer.kind == LayerKind::Embedding) {
    result.weight = embedding_per_sample(layer, a, g);
    return result;
  }
  const at::Tensor g_BTo = at_least_float(as_positions(g));
  const at::Tensor a_BTi = at_least_float(as_positions(a));
  if (layer.weight->trainable) {
    result.weight = layer.kind == LayerKind::RmsNorm ? (g_BTo * a_BTi).sum(1)
                                                     : at::bmm(g_BTo.transpose(1, 2), a_BTi);
  }
  if (layer.bias != nullptr && layer.bias->trainable) result.bias = g_BTo.sum(1);
  return result;
}

LayerGradients summed_gradients(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) {
  LayerGradients result;
  const at::Tensor g_No = g.reshape({-1, g.size(-1)});
  if (layer.weight->trainable) {
    switch (layer.kind) {
      case LayerKind::Linear:
        result.weight = at::matmul(g_No.t(), a.reshape({-1, a.size(-1)}));
        break;
      case LayerKind::Embedding:
        result.weight = at::zeros_like(layer.weight->value);
        result.weight.index_add_(0, a.flatten(), g_No.to(result.weight.scalar_type()));
        break;
      case LayerKind::RmsNorm:
        result.weight =
            at_least_float(g_No * a.reshape({-1, a.size(-1)})).sum(0).to(g.scalar_type());
        break;
    }
  }
  if (layer.bias != nullptr && layer.bias->trainable) {
    result.bias = at_least_float(g_No).sum(0).to(g.scalar_type());
  }
  return result;
}

}  // namespace moonshard::privacy
