// Deliberate mistakes, one at a time, to prove that verification and audits detect them. Each is a
// StepHooks given to the trainers of one verification or audit; no experiment option enables it,
// and nothing else in the process changes.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "runtime/privacy/step_hooks.h"

namespace moonshard::verify {

enum class Fault {
  // Sums and norms that are wrong: moonshard verify finds them.
  NoBiasTerm,        ///< the bias's part of a layer's norm is left out
  NoCrossTerm,       ///< tied weights: the two uses' norms are added without their inner product
  NoPaddingRule,     ///< the padding row of an embedding counts like any other
  MicroStepNorm,     ///< the second micro-batch of an accumulation is not clipped
  WrongDenominator,  ///< the sum is not divided by the batch size
  ShortNorm,         ///< factors are made from norms that are 5 % too small
  // Broken privacy guarantees: moonshard audit finds them.
  NoiseOverSqrt2,  ///< noise / sqrt(2)
  NoiseOverWorld,  ///< noise / number of ranks, as gradients that are averaged
  NoiseOverBatch,  ///< noise / batch size, which divides it a second time (Tramer et al. 2022)
  NoiseBeforeReduction,  ///< each rank adds noise / ranks before the reduction
  ReusedNoise,           ///< every step draws the noise of the first
  RealisedDenominator,   ///< division by the actual batch size, not the expected one
  SkippedEmptyStep,      ///< a step without samples adds no noise
  ClippingPerShard,      ///< a rank's norms have only the parameters of its own shard
  ClippingPerLayer,      ///< every layer may use the whole bound
  LayerLeftOut,          ///< norms omit the embedding
  NoClipping
};

struct FaultName {
  Fault fault;
  const char* name;
};
inline constexpr FaultName kVerifyFaults[] = {{Fault::NoBiasTerm, "no_bias_term"},
                                              {Fault::NoCrossTerm, "no_cross_term"},
                                              {Fault::NoPaddingRule, "no_padding_rule"},
                                              {Fault::MicroStepNorm, "micro_step_norm"},
                                              {Fault::WrongDenominator, "wrong_denominator"},
                                              {Fault::ShortNorm, "short_norm"}};
inline constexpr FaultName kAuditFaults[] = {
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

/// Hooks that make this mistake, for one trainer at a time.
std::shared_ptr<privacy::StepHooks> make_fault(Fault fault);

/// The same by name, of one of the lists above; null for an empty name. Throws UsageError that
/// lists the names; `where` is its prefix.
std::shared_ptr<privacy::StepHooks> fault_by_name(std::span<const FaultName> list,
                                                  const std::string& where,
                                                  const std::string& name);

}  // namespace moonshard::verify
