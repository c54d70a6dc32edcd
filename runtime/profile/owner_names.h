// Owners of tensor memory: names as in records and plots, each with one line that says what belongs
// to it. Needs no torch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace moonshard::profile {

enum class Owner : uint8_t {
  Parameters,
  GatheredParameters,
  CastParameters,
  Gradients,
  OptimizerState,
  Activations,
  OutputGradients,
  EngineKept,
  NormSamples,
  TemporariesGgt,
  TemporariesAat,
  EngineTemporaries,
  Communication,
  Data,
  StepTemporaries,
  Count
};

inline constexpr size_t kOwners = static_cast<size_t>(Owner::Count);
using OwnerBytes = std::array<int64_t, kOwners>;

struct OwnerName {
  const char* name;
  const char* doc;  ///< one line
};

/// In the order of the enum.
inline constexpr OwnerName kOwnerNames[] = {
    {"parameters", "weights that are trained or frozen, or this rank's part of them"},
    {"gathered_parameters", "whole units of a sharded model, while they are used"},
    {"cast_parameters", "copies of the weights in the compute dtype (mixed precision)"},
    {"gradients", "sums of gradients over the samples"},
    {"optimizer_state", "momentum and moments of the update rule"},
    {"activations", "what the forward pass keeps for the backward pass"},
    {"output_gradients", "what the backward pass hands from layer to layer"},
    {"engine_kept", "what a clipping engine holds until the clip factors are known"},
    {"norm_samples", "per-sample norms and clip factors"},
    {"temporaries_ggt", "Gram matrices of output gradients (ghost norms)"},
    {"temporaries_aat", "Gram matrices of activations (ghost norms)"},
    {"engine_temporaries", "other work space of norms and clipped sums"},
    {"communication", "buffers that are sent to and received from other ranks"},
    {"data", "the batches of the step"},
    {"step_temporaries", "work space of noise, reduction and optimizer"},
};
static_assert(std::size(kOwnerNames) == kOwners);

constexpr const char* owner_name(Owner owner) {
  return kOwnerNames[static_cast<size_t>(owner)].name;
}

/// The phases of a training step: names used alike in results, logs and traces, each with one line
/// that says what its time is spent on. Needs no torch.
struct PhaseName {
  const char* name;
  const char* doc;  ///< one line
};

/// In the order of a step. A private step updates in one pass ("update"); where gradients are
/// observed, and without privacy, "noise" and "optimizer" are separate phases.
inline constexpr PhaseName kPhases[] = {
    {"data", "fetching the step's batches"},
    {"graph", "everything from forward to clipped sums of a replayed step (compile)"},
    {"forward", "forward pass and per-sample losses"},
    {"backward", "backward pass, with the per-sample norms in it"},
    {"norm_reduce", "summing norms over ranks (norm_reduce = sum)"},
    {"clip_factors", "from per-sample norms to clip factors"},
    {"clipped_sum", "clipped sums from what the engine kept"},
    {"second_backward", "second backward pass with scaled losses (ghost, flash)"},
    {"reduce", "waiting for gradients of other ranks"},
    {"noise", "adding noise to the summed gradient"},
    {"optimizer", "the update rule"},
    {"update", "noise, division and update rule of a private step in one pass, unit by unit"},
};

/// First words of ranges in traces, before the name of a layer, for who asks what a step costs
/// without clipping: what only norms need, and gradients of samples that are kept for the sum, in
/// the place of a plain step's gradients.
inline constexpr const char* kTracedNorms = "norms";
inline constexpr const char* kTracedGradients = "gradients";

}  // namespace moonshard::profile
