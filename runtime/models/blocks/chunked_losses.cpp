// A head and its losses in chunks of positions: one autograd function, so that scores [B, T, V],
// the largest tensor of a long context, never exist. Shape letters: B samples, T positions, n of a
// chunk, d width, V vocabulary.
#include <algorithm>

#include "kernels/cross_entropy/cross_entropy.h"
#include "runtime/base/check.h"
#include "runtime/models/blocks/layer_function.h"
#include "runtime/models/blocks/losses.h"

namespace moonshard::models {
namespace {

using namespace layer_function;

at::Tensor weight_of(const ParamLayer& layer, at::ScalarType type) {
  const profile::OwnerScope cast(profile::Owner::CastParameters);
  return layer.weight->value.to(type);
}

// sum [V, d] += g [n, V]^T a [n, d], float32 or wider. A GPU multiplies 16-bit operands into
// float32 as they are.
void add_gradient(at::Tensor& sum, const at::Tensor& g_nV, const at::Tensor& a_nd) {
  const auto wide = statistics_type(a_nd.scalar_type());
  const bool as_they_are = a_nd.is_cuda() && wide != a_nd.scalar_type();
  const at::Tensor left = as_they_are ? g_nV.t() : g_nV.to(wide).t(),
                   right = as_they_are ? a_nd : a_nd.to(wide);
  if (!sum.defined()) {
    sum = as_they_are ? at::mm(left, right, wide) : at::mm(left, right);
  } else if (sum.scalar_type() != wide) {
    sum.add_(as_they_are ? at::mm(left, right, wide) : at::mm(left, right));
  } else if (as_they_are) {
    at::addmm_out(sum, sum, left, right, wide);
  } else {
    sum.addmm_(left, right);
  }
}

struct Positions {
  int64_t sample, first, count;
  at::Tensor of(const at::Tensor& x) const { return x[sample].narrow(0, first, count); }
};

// Chunks never cross samples: backward needs each sample's part of the weight's gradient, and makes
// the very scores that forward made.
template <class Visit>
void for_chunks_of(int64_t sample, int64_t T, int64_t chunk, Visit visit) {
  for (int64_t first = 0; first < T; first += chunk)
    visit(Positions{sample, first, std::min(chunk, T - first)});
}

// The backward pass, a sample at a time.
struct HeadBackward {
  at::Tensor x_BTd, labels_BT, log_sums_BT, factors_BT, weight_Vd;
  at::Tensor x_gradient_BTd;  ///< written where it is defined
  int64_t chunk;
  double cap;

  /// take(positions, a [n, d], g [n, V]) sees the gradient of each chunk's scores, which then goes.
  template <class Take>
  void run(int64_t sample, Take take) const {
    for_chunks_of(sample, x_BTd.size(1), chunk, [&](const Positions& at) {
      const at::Tensor a_nd = at.of(x_BTd);
      at::Tensor g_nV;
      {
        const profile::OwnerScope scope(profile::Owner::OutputGradients);
        g_nV = kernels::cross_entropy_backward(at::linear(a_nd, weight_Vd), at.of(labels_BT),
                                               at.of(log_sums_BT), at.of(factors_BT),
                                               /*overwrite=*/true, cap);
        if (x_gradient_BTd.defined()) {
          at::Tensor part = at.of(x_gradient_BTd);
          at::mm_out(part, g_nV, weight_Vd);
        }
      }
      take(at, a_nd, g_nV);
    });
  }
};

struct HeadLossFunction : Function<HeadLossFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_BTd,
                            const at::Tensor& labels_BT, const at::Tensor&, ParamLayer* layer,
                            int64_t chunk, double cap) {
    remember_layer(context, layer);
    context->saved_data["chunk"] = chunk;
    context->saved_data["cap"] = cap;
    const at::Tensor weight_Vd = weight_of(*layer, x_BTd.scalar_type());
    const auto wide = x_BTd.options().dtype(statistics_type(x_BTd.scalar_type()));
    const at::Tensor losses_BT = at::empty(labels_BT.sizes(), wide),
                     log_sums_BT = at::empty(labels_BT.sizes(), wide);
    for (int64_t b = 0; b < x_BTd.size(0); ++b) {
      for_chunks_of(b, x_BTd.size(1), chunk, [&](const Positions& at) {
        const kernels::RowLosses rows = kernels::cross_entropy_forward(
            at::linear(at.of(x_BTd), weight_Vd), at.of(labels_BT), cap);
        at.of(losses_BT).copy_(rows.losses);
        at.of(log_sums_BT).copy_(rows.log_sums);
      });
    }
    context->save_for_backward({x_BTd, labels_BT, log_sums_BT});
    return losses_BT;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    ParamLayer& layer = remembered_layer(context);
    const BackwardUse use(layer);
    const auto saved = context->get_saved_variables();
    const at::Tensor &x_BTd = saved[0], &labels_BT = saved[1];
    const int64_t B = x_BTd.size(0);
    const HeadBackward head{x_BTd,
                            labels_BT,
                            saved[2],
                            gradients[0],
                            weight_of(layer, x_BTd.scalar_type()),
                            context->needs_input_grad(0) ? at::empty_like(x_BTd) : at::Tensor(),
                            context->saved_data["chunk"].toInt(),
                            context->saved_data["cap"].toDouble()};
    GradientConsumer* consumer = layer.trainable() ? layer.seam->consumer : nullptr;
    if (consumer != nullptr && consumer->takes_samples(layer)) {
      hand_over_samples(layer, B, [&](int64_t sample, at::Tensor& sum) {
        head.run(sample, [&](const Positions&, const at::Tensor& a_nd, const at::Tensor& g_nV) {
          add_gradient(sum, g_nV, a_nd);
        });
      });
    } else {
      // Who must see (a, g) gets them whole: references, and engines with norms of their own.
      const at::Tensor g_BTV =
          consumer == nullptr
              ? at::Tensor()
              : at::empty({B, x_BTd.size(1), layer.weight->value.size(0)}, x_BTd.options());
      for (int64_t b = 0; b < B; ++b)
        head.run(b, [&](const Positions& at, const at::Tensor&, const at::Tensor& g_nV) {
          if (g_BTV.defined()) at.of(g_BTV).copy_(g_nV);
        });
      hand_over(layer, x_BTd, g_BTV);
    }
    return {head.x_gradient_BTd, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor chunked_token_losses(const at::Tensor& x, ParamLayer& layer, const at::Tensor& labels,
                                int64_t chunk, double cap) {
  MS_CHECK(x.dim() == 3 && x.size(2) == layer.weight->value.size(1) && chunk > 0,
           "layer '{}': expected input [B, T, {}] and chunks of at least one position, got {} and "
           "{}; check the model's sizes and head_chunk",
           layer.name, layer.weight->value.size(1), c10::str(x.sizes()), chunk);
  MS_CHECK(
      layer.lora_up == nullptr && layer.bias == nullptr,
      "layer '{}': expected neither adapter nor bias where head_chunk is given, got one; leave "
      "it out of lora_targets, or set head_chunk = 0",
      layer.name);
  const at::Tensor losses = with_parameters(layer, [&] {
    return HeadLossFunction::apply(x, labels, anchor_of(layer), &layer, chunk, cap);
  });
  return mean_of_labelled(losses, labels);
}

}  // namespace moonshard::models
