// Engine "none": what every other framework does. The weight gradient is formed at the seam and
// added to the parameter's sum; nothing else is kept.
#include <ATen/ATen.h>

#include "runtime/privacy/engines/engines.h"
#include "runtime/privacy/layer_rules.h"
#include "runtime/profile/ledger.h"

namespace moonshard::privacy {
namespace {

class PlainEngine : public ClipEngine {
 public:
  const char* name() const override { return "none"; }
  bool is_private() const override { return false; }

  void begin(models::Model&, const MicroBatch&) override {}

  void consume(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) override {
    const at::NoGradGuard no_grad;
    const profile::OwnerScope scope(profile::Owner::Gradients);
    add_gradients(layer, a, g);
    announce_gradients(layer);
  }

  bool takes_rows(const models::ParamLayer& layer) const override {
    return has_built_in_rule(layer);
  }
  void consume_rows(const models::ParamLayer& layer, const at::Tensor& weight_rows,
                    const at::Tensor& bias_rows) override {
    const at::NoGradGuard no_grad;
    const profile::OwnerScope scope(profile::Owner::Gradients);
    if (weight_rows.defined()) add_rows(*layer.weight, weight_rows);
    if (bias_rows.defined()) add_rows(*layer.bias, bias_rows);
    announce_gradients(layer);
  }

  bool takes_samples(const models::ParamLayer& layer) const override {
    return has_built_in_rule(layer);
  }
  void consume_samples(const models::ParamLayer& layer, int64_t samples,
                       const models::AddSample& add) override {
    const at::NoGradGuard no_grad;
    const profile::OwnerScope scope(profile::Owner::Gradients);
    for (int64_t b = 0; b < samples; ++b) add(b, layer.weight->grad);
    announce_gradients(layer);
  }

  ClipReport clip(profile::PhaseTimer&) override { return {}; }
};

}  // namespace

std::unique_ptr<ClipEngine> make_plain_engine() {
  return std::make_unique<PlainEngine>();
}

}  // namespace moonshard::privacy
