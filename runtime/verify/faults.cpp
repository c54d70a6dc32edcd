#include "runtime/verify/faults.h"

#include <ATen/ATen.h>

#include <cmath>
#include <set>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/base/options.h"
#include "runtime/comm/rank_environment.h"

namespace moonshard::verify {
namespace {

class FaultHooks : public privacy::StepHooks {
 public:
  explicit FaultHooks(Fault fault) : fault_(fault) {}

  void begin_step(models::Model& model) override {
    find_uncounted(model);
    if (fault_ != Fault::NoPaddingRule) return;
    for (const auto& layer : model.layers()) {
      padding_ids_.push_back(layer->padding_id);
      layer->padding_id = -1;
    }
  }

  void end_step(models::Model& model) override {
    for (size_t i = 0; i < padding_ids_.size(); ++i)
      model.layers()[i]->padding_id = padding_ids_[i];
    padding_ids_.clear();
  }

  void change_noise(optim::NoiseSpec& noise, const privacy::NoisePlace& place) override {
    if (fault_ == Fault::NoiseOverSqrt2) noise.std /= std::sqrt(2.0);
    if (fault_ == Fault::NoiseOverWorld) noise.std /= place.world;
    if (fault_ == Fault::NoiseOverBatch) noise.std /= noise.denominator;
    if (fault_ == Fault::ReusedNoise) noise.step = 1;
    if (fault_ == Fault::SkippedEmptyStep && place.samples == 0) noise.std = 0;
    if (fault_ == Fault::WrongDenominator) noise.denominator = 1;
    if (fault_ == Fault::RealisedDenominator)
      noise.denominator = static_cast<double>(std::max<int64_t>(1, place.samples));
    if (fault_ == Fault::NoiseBeforeReduction && !place.is_count) {
      early_std_ = noise.std / place.world;
      // Ranks use different keys, so that their noise is independent.
      early_stream_ = {noise.key + 1 + static_cast<uint64_t>(place.rank), noise.step, 0};
      has_early_noise_.clear();
      noise.std = 0;
    }
  }

  void before_reduction(const models::ParamLayer& layer) override {
    if (fault_ != Fault::NoiseBeforeReduction) return;
    for (models::Parameter* parameter : {layer.weight, layer.bias}) {
      if (parameter == nullptr || !parameter->trainable) continue;
      if (!has_early_noise_.insert(parameter->index).second) continue;  // once a step
      // A sharded parameter that was released has only its shape left.
      if (!parameter->grad.defined())
        parameter->grad = at::zeros(parameter->value.sizes(), at::kFloat);
      parameter->grad = parameter->grad.contiguous();
      kernels::NoiseStream stream = early_stream_;
      stream.parameter = parameter->index;
      kernels::add_counter_noise(parameter->grad, early_std_, stream);
    }
  }

  bool counts(const models::Parameter& parameter) const override {
    return !uncounted_.contains(parameter.index);
  }

  bool joins_tied_weights() const override { return fault_ != Fault::NoCrossTerm; }

  at::Tensor factors(const privacy::Clipping& clipping, const at::Tensor& norms, double share,
                     int64_t micro_batch) const override {
    const bool is_unclipped =
        fault_ == Fault::NoClipping || (fault_ == Fault::MicroStepNorm && micro_batch == 1);
    if (is_unclipped) return at::ones_like(norms);
    if (fault_ == Fault::ShortNorm) return clipping.factors(norms * 0.95, share);
    return clipping.factors(norms, fault_ == Fault::ClippingPerLayer ? 1 : share);
  }

 private:
  void find_uncounted(const models::Model& model) {
    uncounted_.clear();
    for (const auto& layer : model.layers()) {
      if (fault_ == Fault::NoBiasTerm && layer->bias != nullptr)
        uncounted_.insert(layer->bias->index);
      if (fault_ == Fault::LayerLeftOut && layer->kind == models::kinds::kEmbedding)
        uncounted_.insert(layer->weight->index);
    }
    if (fault_ != Fault::ClippingPerShard) return;
    const auto environment = comm::rank_environment();
    const int64_t rank = environment ? environment->rank : 0;
    const int64_t world = environment ? environment->world : 1;
    const auto count = static_cast<int64_t>(model.parameters().size());
    for (const auto& parameter : model.parameters())
      if (parameter->index * world / count != rank) uncounted_.insert(parameter->index);
  }

  Fault fault_;
  std::set<uint32_t> uncounted_;      ///< parameters that norms leave out
  std::vector<int64_t> padding_ids_;  ///< by layer, while a step runs
  double early_std_ = 0;              ///< of the noise that each rank adds by itself
  kernels::NoiseStream early_stream_{};
  std::set<uint32_t> has_early_noise_;  ///< parameters of this step
};

}  // namespace

std::shared_ptr<privacy::StepHooks> make_fault(Fault fault) {
  return std::make_shared<FaultHooks>(fault);
}

std::shared_ptr<privacy::StepHooks> fault_by_name(std::span<const FaultName> list,
                                                  const std::string& where,
                                                  const std::string& name) {
  if (name.empty()) return nullptr;
  std::vector<std::string> names;
  for (const FaultName& known : list) {
    if (name == known.name) return make_fault(known.fault);
    names.emplace_back(known.name);
  }
  fail_unknown_name(where + ": option 'fault'", name, names);
}

}  // namespace moonshard::verify
