// Engine "none": what every other framework does. The weight gradient is formed at the seam and
// added to the parameter's sum; nothing else is kept.
#include <ATen/ATen.h>

#include "runtime/privacy/engines/engines.h"
#include "runtime/privacy/layer_rules.h"

namespace moonshard::privacy {
namespace {

class PlainEngine : public ClipEngine {
 public:
  const char* name() const override { return "none"; }
  bool is_private() const override { return false; }

  void begin(models::Model&, int64_t) override {}

  void consume(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) override {
    const at::NoGradGuard no_grad;
    const LayerGradients gradients = summed_gradients(layer, a, g);
    add(layer.weight, gradients.weight);
    add(layer.bias, gradients.bias);
  }

  ClipReport finish(profile::PhaseTimer&) override { return {}; }

 private:
  static void add(models::Parameter* parameter, const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    if (parameter->grad.defined()) {
      parameter->grad.add_(gradient);  // a tied weight's second use
    } else {
      parameter->grad = gradient;
    }
  }
};

}  // namespace

std::unique_ptr<ClipEngine> make_plain_engine() {
  return std::make_unique<PlainEngine>();
}

}  // namespace moonshard::privacy
