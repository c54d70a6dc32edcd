// Makers of the engines, and what the norm-based ones share.
#pragma once

#include <memory>

#include "runtime/privacy/norm_cost.h"
#include "runtime/privacy/norm_engine.h"

namespace moonshard::privacy {

std::unique_ptr<ClipEngine> make_plain_engine();
/// materialize, ghost, flash, bookkeeping, flash_bookkeeping: one plan for all layers.
std::unique_ptr<ClipEngine> make_uniform_engine(const ClipOptions& options,
                                                std::shared_ptr<Clipping> clipping);
std::unique_ptr<ClipEngine> make_auto_engine(const ClipOptions& options,
                                             std::shared_ptr<Clipping> clipping);
/// Norms by the caller's function (an engine from a script); sums from (a, g), or by a second pass.
std::unique_ptr<ClipEngine> make_custom_engine(const std::string& name, NormFunction norms,
                                               Keep keep, std::shared_ptr<Clipping> clipping);

/// The layer's shape at the seam, for norm_cost.h. `readers`: NormEngine::readers.
LayerShape shape_at(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                    int64_t readers);

/// Norm layers and tables: B x d numbers say all, so that (a, g) need not be kept.
bool has_small_gradient(const models::ParamLayer& layer);

}  // namespace moonshard::privacy
