// Norm layers: the weight scales each channel, its gradient is the sum over positions of g times
// the normalised input. B x d numbers: small enough to hold.
#include "runtime/privacy/layer_rules/rules.h"

namespace moonshard::privacy {
namespace {

class ScaleRule : public LayerRule {
 public:
  at::Tensor per_sample(const models::ParamLayer&, const at::Tensor& a,
                        const at::Tensor& g) const override {
    return (at_least_float(as_positions(g)) * at_least_float(as_positions(a))).sum(1);
  }
};

}  // namespace

std::shared_ptr<const LayerRule> make_scale_rule() {
  return std::make_shared<ScaleRule>();
}

}  // namespace moonshard::privacy
