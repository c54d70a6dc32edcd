// What is verified: the registry of engine x model x options x dtype. `moonshard engines` prints
// its support table from it and `moonshard verify` runs it, so that the table claims only what is
// verified.
#pragma once

#include <string>
#include <vector>

#include "runtime/models/model_options.h"
#include "runtime/privacy/clipping.h"
#include "runtime/sharding/sharding_options.h"
#include "runtime/train/trainer.h"

namespace moonshard::verify {

/// One way to train that changes what an engine has to get right.
struct Variant {
  std::string name;  ///< "default", "accumulation", …
  std::string doc;
  void (*apply)(models::ModelOptions&, privacy::ClipOptions&, train::StepOptions&);
  bool every_format = false;  ///< also in float32 and bfloat16; else in float64 only
  /// Model option that the family must have; the variant does not apply to other families.
  std::string needs_option = {};
  std::string needs_task = {};
  bool private_only = false;  ///< has no effect without clipping
  bool flash_only = false;    ///< affects only the flash engine's norms
  int64_t batch_size = 5;
  int64_t seq_length = 7;
  bool padded = false;  ///< sequences of different length, filled up with pad_token_id
  /// For wrappers: the changed option, and the wrappers it applies to.
  void (*apply_sharding)(sharding::ShardingOptions&) = nullptr;
  bool fsdp_only = false;
  bool mixes_dtypes = false;  ///< units compute in dtypes of their own: not compared in float64
  /// How many of the tiny presets stand for all: every one, one of each family, or vectors, for
  /// what does not depend on kinds of layers.
  enum class Presets { All, Few, One } presets = Presets::All;
  std::string optimizer = "sgd";
  bool draws = false;     ///< batches are drawn by Poisson sampling; one of them is empty
  bool fills_up = false;  ///< micro-batches have rows that count nowhere (Batch::counted)
  bool secret = false;    ///< noise is drawn under a secret of the operating system
  bool own_pass = false;  ///< bfloat16 against a pass of the reference's own (reference.h)
  /// A layer's weight and bias have two bounds: engines of scripts have one norm for both.
  bool splits_layers = false;
  bool neighbours = false;  ///< sums with and without a sample are compared (neighbours.h)
};
const std::vector<Variant>& variants();

/// Dtypes of weights and computation, and the error that is allowed in them.
struct Format {
  std::string name;  ///< "float64", "float32", "bfloat16" (float32 weights, bfloat16 compute)
  std::string dtype, param_dtype;
  double tolerance;
  double epsilon;  ///< of the dtype in which gradients are summed
};
const std::vector<Format>& formats();

/// Model and task.
struct Subject {
  std::string model, task;
};
/// The tiny preset of every family, or the one that was asked for, in every task that it has.
std::vector<Subject> subjects(const std::string& model);

bool applies(const Variant& variant, const Subject& subject, const Format& format);
/// Of a variant that was not asked for by name: whether it runs on this one. A model that was asked
/// for runs all; but on several ranks, which are slow, vectors stand for Few, too.
bool is_chosen(const Variant& variant, const Subject& subject, bool model_was_asked_for, int ranks);
/// One engine with a second pass and one without: they stand for all where ranks are slow and
/// engines make no difference.
bool stands_for_all(const std::string& engine);
bool applies(const Variant& variant, const std::string& engine);
bool applies(const Variant& variant, const sharding::ShardingOptions& sharding);

/// Shrinks the model where its own sizes prove nothing more: everywhere but in the default variant
/// without a wrapper.
void shrink(const Variant& variant, models::ModelOptions& model, bool wrapped = false);

/// User-facing kind of a layer: "linear", "linear_bias", "linear_2d", "adaln_linear",
/// "tied_embedding", "embedding", "rms_norm", …
std::string layer_case(const models::Model& model, const models::ParamLayer& layer);

}  // namespace moonshard::verify
