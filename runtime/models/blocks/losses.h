// Per-sample losses: one number per sample, so that its gradient is that sample's own.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/models/parameter.h"

namespace moonshard::models {

/// scores [B, C], labels [B] -> cross-entropy per sample [B], in float32 or wider.
at::Tensor classification_losses(const at::Tensor& scores, const at::Tensor& labels);

/// scores [B, T, V], labels [B, T] -> mean cross-entropy over each sample's tokens [B]; -100 is
/// ignored. Takes the scores over: where the kernel runs, their gradient overwrites them
/// in the last backward pass, so the caller must not keep them. With a cap > 0 the scores are
/// capped here (soft_capped).
at::Tensor token_losses(const Seam& seam, at::Tensor scores, const at::Tensor& labels,
                        double cap = 0);

/// The same of linear(x, layer) for x [B, T, d], with the scores of at most `chunk` positions of
/// one sample at a time: kept are x, the labels and one number per position, and backward makes a
/// chunk's scores again. The layer has neither bias nor adapter.
at::Tensor chunked_token_losses(const at::Tensor& x, ParamLayer& layer, const at::Tensor& labels,
                                int64_t chunk, double cap = 0);

/// losses, labels [B, T] -> the mean over each sample's labelled positions [B].
at::Tensor mean_of_labelled(const at::Tensor& losses, const at::Tensor& labels);

/// outputs, targets [B, …] -> mean squared error per sample [B].
at::Tensor regression_losses(const at::Tensor& outputs, const at::Tensor& targets);

}  // namespace moonshard::models
