// How per-sample gradients are clipped and how much noise their sum gets. Torch-free.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/options.h"
#include "runtime/privacy/engine_names.h"

namespace moonshard::privacy {

struct ClipOptions {
  std::string mode = "none";
  std::string clipping = "flat";
  std::string clip_groups;
  double max_grad_norm = 1.0;
  double noise_multiplier = 1.0;
  double stability = 0.01;
  double target_quantile = 0.5;
  double quantile_lr = 0.2;
  double quantile_noise = 0;
  int64_t tile_size = 0;
  std::string flash_algorithm = "auto";
  int64_t memory_budget_mb = 0;
};

template <class T>
void add_clip_options(OptionSchema& schema) {
  Option& mode =
      schema.choice<T>("mode", &T::mode, {}, "clipping engine; none trains without privacy");
  mode.live_choices = &engine_names;
  mode.live_aliases = &engine_aliases;
  schema.choice<T>(
      "clipping", &T::clipping, {"flat", "per_layer", "automatic", "adaptive", "groups"},
      "how norms become factors: one bound, one per layer, normalising, a quantile, or bounds of "
      "clip_groups");
  schema.text<T>("clip_groups", &T::clip_groups,
                 "clipping = groups: globs of parameters and the bound of each group, '*lora_A* = "
                 "0.5; *.bias, score.* = 1'; max_grad_norm bounds what none of them matches");
  schema.real<T>("max_grad_norm", &T::max_grad_norm, 1e-12, 1e12,
                 "clipping bound C of each sample's gradient norm; adaptive clipping starts there");
  schema
      .real<T>("noise_multiplier", &T::noise_multiplier, 0, 1e6,
               "noise std over C, added once to the summed gradient")
      .aliases = {"sigma"};
  schema.real<T>("stability", &T::stability, 1e-9, 1e6,
                 "automatic clipping: gamma in C / (norm + gamma)");
  schema.real<T>("target_quantile", &T::target_quantile, 0, 1,
                 "adaptive clipping: share of samples that should stay unclipped");
  schema.real<T>("quantile_lr", &T::quantile_lr, 0, 10, "adaptive clipping: how fast C moves");
  schema.real<T>("quantile_noise", &T::quantile_noise, 0, 1e9,
                 "adaptive clipping: noise std of the count; 0 takes batch / 20");
  schema.integer<T>("tile_size", &T::tile_size, 0, 1e6,
                    "flash norms: positions or rows at a time; 0 chooses");
  schema.choice<T>("flash_algorithm", &T::flash_algorithm, {"auto", "input_length", "width"},
                   "flash norms: by tiles of positions, by tiles of width, or the cheaper");
  schema.integer<T>(
      "memory_budget_mb", &T::memory_budget_mb, 0, 1e9,
      "engine auto: what it may keep across layers; 0: half of what a GPU has beside the "
      "weights and a copy of them, elsewhere no limit");
}

/// The privacy budget that a run may be given, and how its epsilon is computed.
struct PrivacyOptions {
  double target_epsilon = 0;
  double delta = 1e-5;
  double epochs = 0;
  int64_t budget_steps = 0;
  std::string accountant = "pld";
  bool secure = true;
  int64_t releases = 0;      ///< of noised evaluations that the budget must last for
  double release_noise = 0;  ///< their noise multiplier
};

/// Noise from the seed, for verification and debugging: no epsilon is claimed.
inline PrivacyOptions reproducible_noise() {
  PrivacyOptions options;
  options.secure = false;
  return options;
}

template <class T>
void add_privacy_options(OptionSchema& schema) {
  schema.real<T>("target_epsilon", &T::target_epsilon, 0, 1e6,
                 "budget: noise_multiplier is chosen so that the run's steps stay within it; 0 "
                 "leaves noise_multiplier as it is");
  schema.real<T>("delta", &T::delta, 0, 1, "delta of the claimed epsilon");
  schema.real<T>("epochs", &T::epochs, 0, 1e9,
                 "length of the run in passes over the data; 0 counts in steps");
  schema.integer<T>("budget_steps", &T::budget_steps, 0, 1e12,
                    "steps that the budget must last for; 0 takes the epochs");
  schema.choice<T>("accountant", &T::accountant, {"rdp", "prv", "pld"},
                   "how epsilon is computed: all three are guarantees, pld the tightest");
  schema.boolean<T>("secure", &T::secure,
                    "noise and sampling from a secret of the operating system, on a grid that "
                    "resists floating-point attacks; false: reproducible noise from the seed, for "
                    "verification and debugging: not private, no epsilon is claimed");
}

/// For trainers, which can evaluate; sweeps do not.
template <class T>
void add_release_options(OptionSchema& schema) {
  schema.integer<T>("releases", &T::releases, 0, 1e9,
                    "noised evaluations (ms.evaluate) that the target leaves room for");
  schema.real<T>("release_noise", &T::release_noise, 0, 1e9, "noise multiplier of each of them");
}

}  // namespace moonshard::privacy
