// The phases of a training step: names used alike in results, logs and traces, each with one line
// that says what its time is spent on. Needs no torch.
#pragma once

namespace moonshard::profile {

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

}  // namespace moonshard::profile
