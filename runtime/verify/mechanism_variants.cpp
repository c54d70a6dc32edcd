#include "runtime/verify/mechanism_variants.h"

#include "runtime/base/globs.h"
#include "runtime/models/registry.h"

namespace moonshard::verify {

using models::ModelOptions;
using privacy::ClipOptions;
using train::StepOptions;

void in_groups(ModelOptions& model, ClipOptions& clip) {
  clip.clipping = "groups";
  clip.clip_groups = "*.0.*, *_0.* = 1";
  ModelOptions shapes = model;
  shapes.device = "meta";
  const auto whole = models::make_model(shapes);
  for (const auto& parameter : whole->parameters()) {
    const bool is_bias = parameter->trainable && parameter->name.ends_with(".bias") &&
                         !matches_any(globs_of("*.0.*, *_0.*"), parameter->name);
    if (!is_bias) continue;
    clip.clip_groups = "*.0.*, *_0.* = 1; *.bias = 1";
    return;
  }
}

namespace {

void without_draws(ModelOptions& model) {
  if (models::find_preset(model.model).family->takes("label_dropout")) model.label_dropout = 0;
}

}  // namespace

void add_mechanism_variants(std::vector<Variant>& list) {
  const auto add = [&](const char* name, const char* doc, auto apply) -> Variant& {
    Variant& variant = list.emplace_back(Variant{name, doc, apply});
    variant.presets = Variant::Presets::One;
    variant.private_only = true;
    return variant;
  };
  add("noise+per_layer", "noise of the whole bound on layers clipped each by itself",
      [](ModelOptions&, ClipOptions& clip, StepOptions&) {
        clip.noise_multiplier = 0.7;
        clip.clipping = "per_layer";
      });
  add("noise+adaptive", "count and sum share the noise; the bound follows the noisy count",
      [](ModelOptions&, ClipOptions& clip, StepOptions&) {
        clip.noise_multiplier = 0.4;  // below a tenth of the batch: count noise is a twentieth
        clip.clipping = "adaptive";
      });
  add("noise+accumulation", "noise once a step, whatever the number of micro-batches",
      [](ModelOptions&, ClipOptions& clip, StepOptions& step) {
        clip.noise_multiplier = 0.7;
        step.grad_accum = 2;
      });
  add("expected_batch", "division by an expected batch of 8 where 5 samples came",
      [](ModelOptions&, ClipOptions& clip, StepOptions& step) {
        clip.noise_multiplier = 0.7;
        step.expected_batch_size = 8;
      });
  add("expected_batch+adaptive", "the same for the noisy count",
      [](ModelOptions&, ClipOptions& clip, StepOptions& step) {
        clip.noise_multiplier = 0.4;
        clip.clipping = "adaptive";
        step.expected_batch_size = 8;
      });
  add("poisson", "drawn batches of varying size, an empty one among them",
      [](ModelOptions&, ClipOptions& clip, StepOptions&) { clip.noise_multiplier = 0.7; })
      .draws = true;
  list.back().presets = Variant::Presets::Few;  // some models draw by the place in the batch
  add("poisson+padded", "the same in micro-batches of one size, filled up",
      [](ModelOptions&, ClipOptions& clip, StepOptions&) { clip.noise_multiplier = 0.7; })
      .draws = true;
  list.back().presets = Variant::Presets::Few;
  list.back().fills_up = true;
  add("noise+groups", "noise of the whole bound on groups of parameters clipped each by itself",
      [](ModelOptions& model, ClipOptions& clip, StepOptions&) {
        clip.noise_multiplier = 0.7;
        in_groups(model, clip);
      })
      .splits_layers = true;
  // What a model draws for its samples is as secret as the noise, and nobody could repeat it.
  add("secret", "noise under the secret of the process, on its grid",
      [](ModelOptions& model, ClipOptions& clip, StepOptions&) {
        clip.noise_multiplier = 0.7;
        without_draws(model);
      })
      .secret = true;
  add("secret+adaptive", "the same with a noisy count",
      [](ModelOptions& model, ClipOptions& clip, StepOptions&) {
        clip.noise_multiplier = 0.4;
        clip.clipping = "adaptive";
        without_draws(model);
      })
      .secret = true;
  for (const char* name : {"adam", "adamw"}) {
    Variant& variant =
        add(name, "three steps of this optimizer on noised sums",
            [](ModelOptions&, ClipOptions& clip, StepOptions&) { clip.noise_multiplier = 0.7; });
    variant.optimizer = name;
  }
}

void add_neighbour_variants(std::vector<Variant>& list) {
  const auto add = [&](const char* name, const char* doc, auto apply) -> Variant& {
    Variant& variant = list.emplace_back(Variant{name, doc, apply});
    variant.presets = Variant::Presets::One;
    variant.private_only = variant.neighbours = true;
    return variant;
  };
  Variant& flat = add("neighbour", "the sum with and without a sample, flat clipping",
                      [](ModelOptions&, ClipOptions&, StepOptions&) {});
  flat.every_format = true;
  flat.presets = Variant::Presets::Few;
  add("neighbour+accumulation", "the same in two micro-batches",
      [](ModelOptions&, ClipOptions&, StepOptions& step) { step.grad_accum = 2; });
  add("neighbour+per_layer", "the same with a bound for each layer: together the whole bound",
      [](ModelOptions&, ClipOptions& clip, StepOptions&) { clip.clipping = "per_layer"; });
  add("neighbour+groups", "the same with groups of parameters: together the whole bound",
      [](ModelOptions& model, ClipOptions& clip, StepOptions&) { in_groups(model, clip); })
      .splits_layers = true;
  add("neighbour+padded", "the same in batches of one size, filled up",
      [](ModelOptions&, ClipOptions&, StepOptions&) {})
      .fills_up = true;
  add("neighbour+automatic", "the same with normalised samples",
      [](ModelOptions&, ClipOptions& clip, StepOptions&) { clip.clipping = "automatic"; });
  add("neighbour+adaptive", "the same with a bound that moves, and its count",
      [](ModelOptions&, ClipOptions& clip, StepOptions&) { clip.clipping = "adaptive"; });
}

}  // namespace moonshard::verify
