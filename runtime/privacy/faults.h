// Deliberate mistakes, one at a time, to prove that verification and audits see them. Only
// ScopedFault can switch one on, no option of an experiment reaches it, and every fault sits at the
// line it breaks.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "runtime/models/parameter.h"
#include "runtime/optim/optimizer.h"

namespace moonshard::privacy {

enum class Fault {
  None,
  // Sums and norms that are wrong: moonshard verify finds them.
  NoBiasTerm,        ///< the bias's part of a layer's norm is left out
  NoCrossTerm,       ///< tied weights: the two uses' norms are added without their inner product
  NoPaddingRule,     ///< the padding row of an embedding counts like any other
  MicroStepNorm,     ///< the second micro-batch of an accumulation is not clipped
  WrongDenominator,  ///< the sum is not divided by the batch size
  // Promises that are not kept: moonshard audit finds them.
  NoiseOverSqrt2,  ///< noise / sqrt(2)
  NoiseOverWorld,  ///< noise / number of ranks, as gradients that are averaged
  NoiseOverBatch,  ///< noise / batch size, which divides it a second time (Tramer et al. 2022)
  NoiseBeforeReduction,  ///< each rank adds noise / ranks of its own, before sums travel
  ReusedNoise,           ///< every step draws the noise of the first
  RealisedDenominator,   ///< division by the samples that came, not by those expected
  SkippedEmptyStep,      ///< a step without samples adds no noise
  ClippingPerShard,      ///< a rank's norms have only the layers of its own shard
  ClippingPerLayer,      ///< every layer may use the whole bound
  LayerLeftOut,          ///< norms do not know the embedding
  NoClipping
};

struct FaultName {
  Fault fault;
  const char* name;
};
inline constexpr FaultName kFaultNames[] = {{Fault::NoBiasTerm, "no_bias_term"},
                                            {Fault::NoCrossTerm, "no_cross_term"},
                                            {Fault::NoPaddingRule, "no_padding_rule"},
                                            {Fault::MicroStepNorm, "micro_step_norm"},
                                            {Fault::WrongDenominator, "wrong_denominator"}};
inline constexpr FaultName kAuditFaultNames[] = {
    {Fault::NoiseOverSqrt2, "noise_over_sqrt2"},
    {Fault::NoiseOverWorld, "noise_over_world"},
    {Fault::NoiseOverBatch, "noise_over_batch"},
    {Fault::NoiseBeforeReduction, "noise_before_reduction"},
    {Fault::ReusedNoise, "reused_noise"},
    {Fault::RealisedDenominator, "realised_denominator"},
    {Fault::SkippedEmptyStep, "skipped_empty_step"},
    {Fault::ClippingPerShard, "clipping_per_shard"},
    {Fault::ClippingPerLayer, "clipping_per_layer"},
    {Fault::LayerLeftOut, "layer_left_out"},
    {Fault::NoClipping, "no_clipping"},
    {Fault::MicroStepNorm, "micro_step_norm"}};

inline std::atomic<Fault>& active_fault() {
  static std::atomic<Fault> fault{Fault::None};
  return fault;
}

inline bool has_fault(Fault fault) {
  return active_fault().load(std::memory_order_relaxed) == fault;
}

class ScopedFault {
 public:
  explicit ScopedFault(Fault fault) { active_fault() = fault; }
  ~ScopedFault() { active_fault() = Fault::None; }
  ScopedFault(const ScopedFault&) = delete;
  ScopedFault& operator=(const ScopedFault&) = delete;
};

// ---- mistakes of more than one word; each of these does nothing without its fault --------------

struct FaultPlace {
  int64_t samples = 0;  ///< of the step, on all ranks
  int rank = 0, world = 1;
};
/// What becomes of a step's noise.
void spoil(optim::NoiseSpec& noise, const FaultPlace& place);
/// Before a layer's gradients travel: the noise of NoiseBeforeReduction.
void spoil_gradients(const models::ParamLayer& layer);
/// Whether the norm does not count this group of layers, the index-th of `count`.
bool leaves_out(const models::ParamLayer& layer, int64_t index, size_t count);

}  // namespace moonshard::privacy
