#include "runtime/privacy/clip_engine.h"

#include <ATen/ATen.h>

#include "runtime/privacy/engines/engines.h"

namespace moonshard::privacy {

const std::vector<EngineInfo>& engines() {
  static const std::vector<EngineInfo> list = {
      {"none",
       "plain training: gradients summed over the batch, no clipping, no noise",
       false,
       {"no_dp", "vanilla", "no_dp_single"}},
      {"materialize",
       "the reference: every sample's gradient is kept, then scaled and summed",
       true,
       {"materialized"}},
  };
  return list;
}

std::unique_ptr<ClipEngine> make_engine(const ClipOptions& options) {
  if (options.mode == "none") return make_plain_engine();
  MS_ASSERT(options.mode == "materialize", "mode '{}'", options.mode);
  return make_materialize_engine(options);
}

at::Tensor clip_factors(const at::Tensor& norms, double max_grad_norm) {
  // 1e-6 keeps a zero gradient's factor finite; it can only make the factor smaller.
  const at::Tensor factors = (max_grad_norm / (norms + 1e-6)).clamp_max(1.0);
  return at::where(norms.isfinite(), factors, at::zeros_like(factors));
}

}  // namespace moonshard::privacy
