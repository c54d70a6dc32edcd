#include "runtime/verify/cases.h"

#include "runtime/models/registry.h"
#include "runtime/privacy/engine_names.h"
#include "runtime/verify/mechanism_variants.h"

namespace moonshard::verify {
namespace {

using models::ModelOptions;
using privacy::ClipOptions;
using train::StepOptions;

using sharding::ShardingOptions;

// Seven positions in chunks of three.
void add_chunk_variants(std::vector<Variant>& list) {
  const auto add = [&](const char* name, const char* doc, auto apply) -> Variant& {
    Variant& variant = list.emplace_back(Variant{name, doc, apply});
    variant.needs_option = "head_chunk";
    variant.needs_task = "lm";
    return variant;
  };
  add("head_chunk", "the head and its losses in chunks of 3 positions",
      [](ModelOptions& model, ClipOptions&, StepOptions&) { model.head_chunk = 3; })
      .every_format = true;
  Variant& both = add("head_chunk+padding+accumulation",
                      "the same with ignored labels and a padding id, two micro-batches",
                      [](ModelOptions& model, ClipOptions&, StepOptions& step) {
                        model.head_chunk = 3;
                        model.pad_token_id = 0;
                        step.grad_accum = 2;
                      });
  both.padded = true;
  Variant& bounds = add("head_chunk+per_layer", "the same with a bound for each layer",
                        [](ModelOptions& model, ClipOptions& clip, StepOptions&) {
                          model.head_chunk = 3;
                          clip.clipping = "per_layer";
                        });
  bounds.private_only = true;
  add("head_chunk+batch_of_1", "the same of one sample",
      [](ModelOptions& model, ClipOptions&, StepOptions&) { model.head_chunk = 3; })
      .batch_size = 1;
}

void add_wrapper_variants(std::vector<Variant>& list) {
  const auto add = [&](const char* name, const char* doc, auto apply_sharding) -> Variant& {
    Variant& variant = list.emplace_back();
    variant.name = name;
    variant.doc = doc;
    variant.apply = [](ModelOptions&, ClipOptions&, StepOptions&) {};
    variant.apply_sharding = apply_sharding;
    variant.fsdp_only = true;
    return variant;
  };
  add("offload", "parameters, gradients and state in host memory", [](ShardingOptions& sharding) {
    sharding.cpu_offload = true;
  }).every_format = true;
  add("offload+checkpointing+accumulation", "all three, gradients reduced once a step",
      [](ShardingOptions& sharding) { sharding.cpu_offload = sharding.no_sync = true; })
      .apply = [](ModelOptions& model, ClipOptions&, StepOptions& step) {
    model.checkpointing = "block";
    step.grad_accum = 2;
  };
  list.back().needs_option = "checkpointing";
  Variant& no_sync = add("no_sync", "two micro-batches, gradients reduced once a step",
                         [](ShardingOptions& sharding) { sharding.no_sync = true; });
  no_sync.apply = [](ModelOptions&, ClipOptions&, StepOptions& step) { step.grad_accum = 2; };
  no_sync.fsdp_only = false;
  Variant& kept = add("keep_frozen", "adapters beside frozen layers that stay whole",
                      [](ShardingOptions& sharding) { sharding.keep_frozen = true; });
  kept.every_format = true;
  kept.apply = [](ModelOptions& model, ClipOptions&, StepOptions& step) {
    model.lora_rank = 3;
    step.grad_accum = 2;
  };
  add("reshard_root", "the root is whole only where its layers run", [](ShardingOptions& sharding) {
    if (sharding.sharding != "zero2_replicated") sharding.reshard_root = true;
  }).every_format = true;
  // Every model has a second block; linear ones have no root.
  add("unit_policies", "a block on the host, kept from forward to backward; the rest released",
      [](ShardingOptions& sharding) {
        const bool stays = sharding.sharding == "zero2_replicated";
        sharding.wrap = "module";
        sharding.reshard_root = !stays;
        sharding.unit_policies =
            stays ? "*.1: offload = yes"
                  : "*.1: offload = yes, reshard = no; *.0: reshard = yes, reduce_dtype = auto";
      })
      .every_format = true;
  Variant& adapted =
      add("unit_policies+lora+accumulation", "the same with frozen layers, twice a step",
          [](ShardingOptions& sharding) {
            sharding.wrap = "module";
            sharding.keep_frozen = true;
            sharding.unit_policies = "*.1: offload = yes";
          });
  adapted.apply = [](ModelOptions& model, ClipOptions&, StepOptions& step) {
    model.lora_rank = 3;
    step.grad_accum = 2;
  };
  Variant& mixed = add("unit_dtypes", "a block computes in another dtype than the rest",
                       [](ShardingOptions& sharding) {
                         sharding.wrap = "module";
                         sharding.unit_policies = "*.1: dtype = float64; *.0: dtype = float32";
                       });
  mixed.every_format = mixed.mixes_dtypes = true;
  add("no_prefetch", "units are gathered when they are used", [](ShardingOptions& sharding) {
    sharding.forward_prefetch = false;
    sharding.backward_prefetch = "none";
  });
  add("prefetch_post", "gathered after the backward of the unit before, two ahead",
      [](ShardingOptions& sharding) {
        sharding.backward_prefetch = "post";
        sharding.limit_all_gathers = false;
      });
  add("wrap_size", "units of at least 3000 parameters", [](ShardingOptions& sharding) {
    sharding.wrap = "size";
    sharding.min_num_params = 3000;
  });
  add("wrap_none", "one unit", [](ShardingOptions& sharding) { sharding.wrap = "none"; });
  Variant& small = add("small_buckets", "many small reductions, four micro-batches",
                       [](ShardingOptions& sharding) { sharding.bucket_mb = 0.005; });
  small.apply = [](ModelOptions&, ClipOptions&, StepOptions& step) { step.grad_accum = 4; };
  small.fsdp_only = false;
  small.batch_size = 17;
}

}  // namespace

bool is_chosen(const Variant& variant, const Subject& subject, bool model_was_asked_for,
               int ranks) {
  if (variant.presets == Variant::Presets::All) return true;
  // Ranks share a count and sums, whatever style of clipping made them.
  if (ranks > 1 && variant.neighbours && variant.presets == Variant::Presets::One)
    return subject.model == "linear-tiny" && variant.name == "neighbour+adaptive";
  if (subject.model == "linear-tiny") return true;
  if (ranks > 1) return false;
  if (model_was_asked_for) return true;
  if (variant.presets == Variant::Presets::One) return false;
  return (subject.model == "llama3.2-tiny" && subject.task == "lm") || subject.model == "dit-tiny";
}

bool stands_for_all(const std::string& engine) {
  return engine == "ghost" || engine == "bookkeeping";
}

bool applies(const Variant& variant, const sharding::ShardingOptions& sharding) {
  if (variant.apply_sharding == nullptr) return true;
  if (variant.name == "small_buckets") return sharding.parallel == "ddp";
  return sharding.parallel == "fsdp" || (sharding.parallel == "ddp" && !variant.fsdp_only);
}

const std::vector<Variant>& variants() {
  static const std::vector<Variant> list = [] {
    std::vector<Variant> v;
    const auto add = [&](const char* name, const char* doc, auto apply) -> Variant& {
      return v.emplace_back(Variant{name, doc, apply});
    };
    add("default", "flat clipping, one batch", [](ModelOptions&, ClipOptions&, StepOptions&) {
    }).every_format = true;
    add("noise", "noise is added once, at the right scale",
        [](ModelOptions&, ClipOptions& clip, StepOptions&) { clip.noise_multiplier = 0.7; })
        .every_format = true;
    add("accumulation", "two micro-batches per step",
        [](ModelOptions&, ClipOptions&, StepOptions& step) { step.grad_accum = 2; })
        .every_format = true;
    Variant& checkpointing =
        add("checkpointing", "blocks are recomputed in backward",
            [](ModelOptions& model, ClipOptions&, StepOptions&) { model.checkpointing = "block"; });
    checkpointing.every_format = true;
    checkpointing.needs_option = "checkpointing";
    add("kept attention", "blocks are recomputed in backward, but for their attention",
        [](ModelOptions& model, ClipOptions&, StepOptions&) {
          model.checkpointing = "keep_attention";
        })
        .needs_option = "checkpointing";
    Variant& every_token =
        add("every_token", "the last block for all tokens instead of the one that is scored",
            [](ModelOptions& model, ClipOptions&, StepOptions&) { model.last_block = "all"; });
    every_token.needs_option = "last_block";
    every_token.needs_task = "classify";
    add("checkpointing+accumulation", "both, every second block",
        [](ModelOptions& model, ClipOptions&, StepOptions& step) {
          model.checkpointing = "block";
          model.checkpoint_every = 2;
          step.grad_accum = 2;
        })
        .needs_option = "checkpointing";
    add("per_layer", "a bound for each layer", [](ModelOptions&, ClipOptions& clip, StepOptions&) {
      clip.clipping = "per_layer";
    }).every_format = true;
    add("per_layer+accumulation", "a bound for each layer, two micro-batches",
        [](ModelOptions&, ClipOptions& clip, StepOptions& step) {
          clip.clipping = "per_layer";
          step.grad_accum = 2;
        });
    Variant& grouped =
        add("groups", "bounds for groups of parameters",
            [](ModelOptions& model, ClipOptions& clip, StepOptions&) { in_groups(model, clip); });
    grouped.every_format = grouped.splits_layers = true;
    Variant& summed =
        add("groups+accumulation", "bounds for groups of parameters, two micro-batches",
            [](ModelOptions& model, ClipOptions& clip, StepOptions& step) {
              in_groups(model, clip);
              step.grad_accum = 2;
            });
    summed.splits_layers = true;
    summed.presets = Variant::Presets::Few;
    Variant& filled = add("padded", "drawn batches in micro-batches of one size, filled up",
                          [](ModelOptions&, ClipOptions&, StepOptions&) {});
    filled.draws = filled.fills_up = true;
    filled.presets = Variant::Presets::Few;
    add("automatic", "every sample normalised",
        [](ModelOptions&, ClipOptions& clip, StepOptions&) { clip.clipping = "automatic"; });
    add("adaptive", "the bound follows a quantile",
        [](ModelOptions&, ClipOptions& clip, StepOptions&) { clip.clipping = "adaptive"; });
    add("frozen", "some parameters are not trained",
        [](ModelOptions& model, ClipOptions&, StepOptions&) {
          model.frozen = models::family_of(model).frozen_example();
        });
    add("trained_few", "all but few parameters are frozen",
        [](ModelOptions& model, ClipOptions&, StepOptions&) {
          model.trained = models::family_of(model).trained_example();
        });
    add("second_block+checkpointing", "the second block alone is trained, blocks are recomputed",
        [](ModelOptions& model, ClipOptions&, StepOptions&) {
          model.trained = models::family_of(model).second_block_example();
          model.checkpointing = "block";
        })
        .needs_option = "checkpointing";
    add("lora", "adapters of rank 3 are trained, the other layers are frozen",
        [](ModelOptions& model, ClipOptions&, StepOptions&) { model.lora_rank = 3; })
        .every_format = true;
    Variant& dropout = add("lora+dropout", "adapters whose inputs have holes",
                           [](ModelOptions& model, ClipOptions&, StepOptions&) {
                             model.lora_rank = 3;
                             model.lora_dropout = 0.3;
                           });
    dropout.every_format = true;
    dropout.presets = Variant::Presets::Few;
    add("lora+dropout+checkpointing+accumulation", "the same in recomputed blocks, twice a step",
        [](ModelOptions& model, ClipOptions&, StepOptions& step) {
          model.lora_rank = 3;
          model.lora_dropout = 0.3;
          model.checkpointing = "block";
          step.grad_accum = 2;
        })
        .needs_option = "checkpointing";
    v.back().presets = Variant::Presets::Few;
    add("lora+checkpointing+accumulation", "adapters in recomputed blocks, two micro-batches",
        [](ModelOptions& model, ClipOptions& clip, StepOptions& step) {
          model.lora_rank = 3;
          model.checkpointing = "block";
          clip.clipping = "per_layer";
          step.grad_accum = 2;
        })
        .needs_option = "checkpointing";
    Variant& padding =
        add("padding", "sequences of different length, a padding id",
            [](ModelOptions& model, ClipOptions&, StepOptions&) { model.pad_token_id = 0; });
    padding.every_format = padding.padded = true;
    padding.needs_option = "pad_token_id";
    Variant& affine =
        add("affine_norms", "layer norms with weight and bias",
            [](ModelOptions& model, ClipOptions&, StepOptions&) { model.norm_affine = "yes"; });
    affine.every_format = true;
    affine.needs_option = "norm_affine";
    Variant& frozen_embedding =
        add("frozen_embedding", "the embedding is frozen; a tied head with it",
            [](ModelOptions& model, ClipOptions&, StepOptions&) {
              model.frozen = "model.embed_tokens.weight";
            });
    frozen_embedding.needs_option = "vocab_size";
    Variant& standard =
        add("standard_attention", "scores as a matrix",
            [](ModelOptions& model, ClipOptions&, StepOptions&) { model.attention = "standard"; });
    standard.needs_option = "attention";
    add("width", "flash norms by tiles of width, 5 rows",
        [](ModelOptions&, ClipOptions& clip, StepOptions&) {
          clip.flash_algorithm = "width";
          clip.tile_size = 5;
        })
        .flash_only = true;
    add("input_length", "flash norms by tiles of 3 positions; the length is no multiple",
        [](ModelOptions&, ClipOptions& clip, StepOptions&) {
          clip.flash_algorithm = "input_length";
          clip.tile_size = 3;
        })
        .flash_only = true;
    add("batch_of_1", "one sample", [](ModelOptions&, ClipOptions&, StepOptions&) {}).batch_size =
        1;
    Variant& one_token =
        add("sequence_of_1", "one token", [](ModelOptions&, ClipOptions&, StepOptions&) {});
    one_token.needs_option = "vocab_size";
    one_token.seq_length = 1;
    Variant& own_pass = add("own_pass", "bfloat16: against a float64 pass of the reference's own",
                            [](ModelOptions&, ClipOptions&, StepOptions&) {});
    own_pass.own_pass = own_pass.every_format = own_pass.private_only = true;
    add_chunk_variants(v);
    add_mechanism_variants(v);
    add_neighbour_variants(v);
    add_wrapper_variants(v);
    for (Variant& variant : v) {
      for (const char* name : {"noise", "per_layer", "per_layer+accumulation", "groups",
                               "groups+accumulation", "automatic", "adaptive"})
        variant.private_only = variant.private_only || variant.name == name;
    }
    return v;
  }();
  return list;
}

const std::vector<Format>& formats() {
  constexpr double kDouble = std::numeric_limits<double>::epsilon();
  constexpr double kFloat = std::numeric_limits<float>::epsilon();
  static const std::vector<Format> list = {{"float64", "float64", "float64", 1e-10, kDouble},
                                           {"float32", "float32", "float32", 1e-5, kFloat},
                                           {"bfloat16", "float32", "bfloat16", 1e-3, kFloat}};
  return list;
}

std::vector<Subject> subjects(const std::string& model) {
  std::vector<Subject> list;
  for (const models::Preset& preset : models::presets()) {
    const std::string& name = preset.sizes.model;
    const bool wanted =
        model.empty() ? name.ends_with("-tiny") : models::find_preset(model).sizes.model == name;
    if (!wanted) continue;
    list.push_back({name, preset.sizes.task});
    for (const models::Task& task : preset.family->description().tasks)
      if (task.name != preset.sizes.task) list.push_back({name, task.name});
  }
  return list;
}

bool applies(const Variant& variant, const Subject& subject, const Format& format) {
  // A block of float32 is 1e-7 off, whatever the rest computes in.
  if (variant.mixes_dtypes && format.name == "float64") return false;
  if (format.name != "float64" && !variant.every_format) return false;
  if (format.name != "bfloat16" && variant.own_pass) return false;
  if (variant.seq_length == 1 && subject.task == "lm") return false;  // nothing comes next
  if (!variant.needs_task.empty() && variant.needs_task != subject.task) return false;
  return variant.needs_option.empty() ||
         models::find_preset(subject.model).family->takes(variant.needs_option);
}

void shrink(const Variant& variant, models::ModelOptions& model, bool wrapped) {
  // At the preset's own sizes once; elsewhere small, with widths that no tile divides.
  if ((variant.name == "default" && !wrapped) || !model.model.ends_with("-tiny")) return;
  models::family_of(model).shrink(model);
}

bool applies(const Variant& variant, const std::string& engine) {
  if (variant.private_only && engine == "none") return false;
  for (const privacy::EngineDescription& known : privacy::engine_descriptions())
    if (known.name == engine && !known.built_in && variant.splits_layers) return false;
  return !variant.flash_only || engine.starts_with("flash") || engine == "auto";
}

std::string layer_case(const models::Model& model, const models::ParamLayer& layer) {
  namespace kinds = models::kinds;
  int64_t uses = 0;
  for (const auto& other : model.layers()) uses += other->weight == layer.weight;
  if (uses > 1) return "tied_embedding";
  if (models::is_adapter_name(layer.weight->name)) return "lora";
  std::string name = layer.kind;
  if (layer.kind == kinds::kLinear) {
    const bool conditioning = layer.name.find("adaLN") != std::string::npos;
    const bool one_position = models::tokens_per_sample(model.options(), 2) == 1 ||
                              layer.name == "score" || layer.name.starts_with("t_embedder");
    name = conditioning ? "adaln_linear" : one_position ? "linear_2d" : "linear";
    if (layer.bias != nullptr && !conditioning) name += "_bias";
  }
  if (layer.kind == kinds::kEmbedding && layer.name.starts_with("y_embedder"))
    name = "label_embedding";
  return name;
}

}  // namespace moonshard::verify
