// Engine "materialize": the definition that all faster engines are measured against. Every sample's
// gradient of every parameter is kept ([B, shape]), its norm is taken over all parameters, and the
// sum is scaled by the clip factors. Costs B times the model's size.
#include <ATen/ATen.h>

#include <map>

#include "runtime/privacy/engines/engines.h"
#include "runtime/privacy/layer_rules.h"

namespace moonshard::privacy {
namespace {

// Sums run in the model's order, not in the order of addresses: the same run gives the same digits.
struct ByIndex {
  bool operator()(const models::Parameter* a, const models::Parameter* b) const {
    return a->index < b->index;
  }
};

class MaterializeEngine : public ClipEngine {
 public:
  explicit MaterializeEngine(const ClipOptions& options) : max_grad_norm_(options.max_grad_norm) {}
  const char* name() const override { return "materialize"; }
  bool is_private() const override { return true; }

  void begin(models::Model&, int64_t batch_size) override {
    batch_size_ = batch_size;
    per_sample_.clear();
  }

  void consume(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) override {
    const at::NoGradGuard no_grad;
    MS_ASSERT(g.size(0) == batch_size_, "layer '{}' with {} samples in a batch of {}", layer.name,
              g.size(0), batch_size_);
    const LayerGradients gradients = per_sample_gradients(layer, a, g);
    keep(layer.weight, gradients.weight);
    keep(layer.bias, gradients.bias);
  }

  ClipReport finish(profile::PhaseTimer& timer) override {
    const at::NoGradGuard no_grad;
    ClipReport report;
    timer.begin("norms");
    at::Tensor squares_B;
    for (const auto& [parameter, gradient] : per_sample_) {
      // In double: a sum over a billion small squares must not lose the last ones.
      const at::Tensor part_B = gradient.flatten(1).square().sum(1, false, at::kDouble);
      squares_B = squares_B.defined() ? squares_B + part_B : part_B;
    }
    MS_CHECK(squares_B.defined(),
             "privacy.materialize: expected at least one trainable parameter, got none");
    report.norms = squares_B.sqrt();
    timer.begin("clip_factors");
    report.factors = clip_factors(report.norms, max_grad_norm_);
    timer.begin("clipped_sum");
    for (auto& [parameter, gradient] : per_sample_) {
      parameter->grad = weighted_sum(gradient, report.factors).to(parameter->value.scalar_type());
      gradient = at::Tensor();  // released at once: the peak stays B times the model, not more
    }
    per_sample_.clear();
    return report;
  }

 private:
  // A sample with factor 0 must not contribute even when its gradient is not finite (0 x inf is
  // NaN).
  static at::Tensor weighted_sum(const at::Tensor& gradient_Bx, const at::Tensor& factors_B) {
    const at::Tensor flat_Bn = gradient_Bx.flatten(1);
    const at::Tensor factors = factors_B.to(flat_Bn.scalar_type());
    const bool all_finite = factors_B.gt(0).all().item<bool>();
    const at::Tensor safe_Bn =
        all_finite ? flat_Bn
                   : at::where(factors.gt(0).unsqueeze(1), flat_Bn, at::zeros_like(flat_Bn));
    return at::matmul(factors, safe_Bn).view(gradient_Bx.sizes().slice(1));
  }

  void keep(models::Parameter* parameter, const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    at::Tensor& kept = per_sample_[parameter];
    // A tied weight is used twice: its gradients add up before the norm, cross term included.
    kept = kept.defined() ? kept.add_(gradient) : gradient;
  }

  double max_grad_norm_;
  int64_t batch_size_ = 0;
  std::map<models::Parameter*, at::Tensor, ByIndex> per_sample_;
};

}  // namespace

std::unique_ptr<ClipEngine> make_materialize_engine(const ClipOptions& options) {
  return std::make_unique<MaterializeEngine>(options);
}

}  // namespace moonshard::privacy
