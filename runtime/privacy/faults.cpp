#include "runtime/privacy/faults.h"

#include <ATen/ATen.h>

#include <cmath>
#include <set>

#include "kernels/counter_noise/counter_noise.h"
#include "runtime/comm/rank_environment.h"

namespace moonshard::privacy {
namespace {

// The noise that each rank adds by itself, and which parameters of this step have it.
struct EarlyNoise {
  double std = 0;
  kernels::NoiseStream stream;
  std::set<uint32_t> done;
};

EarlyNoise& early_noise() {
  static EarlyNoise noise;
  return noise;
}

}  // namespace

void spoil(optim::NoiseSpec& noise, const FaultPlace& place) {
  const double world = place.world;
  if (has_fault(Fault::NoiseOverSqrt2)) noise.std /= std::sqrt(2.0);
  if (has_fault(Fault::NoiseOverWorld)) noise.std /= world;
  if (has_fault(Fault::NoiseOverBatch)) noise.std /= noise.denominator;
  if (has_fault(Fault::ReusedNoise)) noise.step = 1;
  if (has_fault(Fault::SkippedEmptyStep) && place.samples == 0) noise.std = 0;
  if (has_fault(Fault::NoiseBeforeReduction)) {
    EarlyNoise& early = early_noise();
    early = {};
    early.std = noise.std / world;
    // Ranks differ in the key: what they add is independent.
    early.stream = {noise.key + 1 + static_cast<uint64_t>(place.rank), noise.step, 0};
    noise.std = 0;
  }
}

void spoil_gradients(const models::ParamLayer& layer) {
  if (!has_fault(Fault::NoiseBeforeReduction)) return;
  EarlyNoise& early = early_noise();
  for (models::Parameter* parameter : {layer.weight, layer.bias}) {
    if (parameter == nullptr || !parameter->trainable) continue;
    if (!early.done.insert(parameter->index).second) continue;  // once a step, not per micro-batch
    // Where the value is not whole any more only its shape is left.
    if (!parameter->grad.defined())
      parameter->grad = at::zeros(parameter->value.sizes(), at::kFloat);
    parameter->grad = parameter->grad.contiguous();
    kernels::NoiseStream stream = early.stream;
    stream.parameter = parameter->index;
    kernels::add_counter_noise(parameter->grad, early.std, stream);
  }
}

bool leaves_out(const models::ParamLayer& layer, int64_t index, size_t count) {
  if (has_fault(Fault::LayerLeftOut)) return layer.kind == models::kinds::kEmbedding;
  if (!has_fault(Fault::ClippingPerShard)) return false;
  const auto environment = comm::rank_environment();
  const int64_t rank = environment ? environment->rank : 0;
  const int64_t world = environment ? environment->world : 1;
  return index * world / static_cast<int64_t>(count) != rank;
}

}  // namespace moonshard::privacy
