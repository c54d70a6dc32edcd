// A family of models: everything that differs from one family to the next, behind one interface.
// The registry, the cost model, synthetic data, weight files and verification call the family
// and never compare names or tasks. A family lives in families/<name>/ and is listed in
// families.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/models/model_options.h"

namespace moonshard {
struct Batch;
}

namespace moonshard::models {

class BatchDraws;
class ConfigObject;
class Model;
struct ActivationBytes;
struct CostDtypes;

struct Preset {
  ModelOptions sizes;
  int64_t batch_size = 0;  ///< what an experiment takes when it names none
  int64_t seq_length = 0;  ///< tokens of a sample: text, or patches of an image; 1 for vectors
  std::string doc;
  bool has_sizes = true;           ///< or the caller gives them, from a config.json
  const Family* family = nullptr;  ///< set by the registry
};

/// How files of weights may differ from the names of a model's parameters.
struct WeightNames {
  std::string base_prefix;            ///< files of a bare base model leave it out of every name
  std::vector<std::string> optional;  ///< initialised at random if the file lacks them
  /// Files of larger models, of which this one is a part, have one of these in its place.
  std::vector<std::string> outer_prefixes = {};
};

class Family {
 public:
  explicit Family(FamilyDescription description) : description_(std::move(description)) {}
  virtual ~Family() = default;
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  const FamilyDescription& description() const { return description_; }
  const std::string& name() const { return description_.name; }
  /// Whether an option of models means something to this family.
  bool takes(const std::string& option) const;

  virtual std::vector<Preset> presets() const = 0;
  /// The preset's name of a name on the Hugging Face hub, given in lower case without organisation.
  virtual std::string preset_of_hub_name(const std::string& name) const { return name; }
  /// The full name there of one of this family's presets; empty for the others.
  virtual std::string hub_name_of_preset(const std::string&) const { return ""; }

  /// Fills in what follows from other options, after the preset's values are in `o`. `asked` is
  /// what the caller gave.
  virtual void complete(ModelOptions& /*o*/, const ModelOptions& /*asked*/) const {}
  /// Takes resolved options.
  virtual std::unique_ptr<Model> build(const ModelOptions& o) const = 0;

  // ---- batches, of resolved options -----------------------------------------------------------

  /// The recorded seq_length when the user gave `asked`.
  virtual int64_t seq_length(const ModelOptions& /*o*/, int64_t asked) const { return asked; }
  /// Positions that the model computes for one sample.
  virtual int64_t tokens_per_sample(const ModelOptions& o, int64_t length) const {
    return seq_length(o, length);
  }
  virtual Batch synthetic_batch(const ModelOptions& o, int64_t batch_size, int64_t length,
                                BatchDraws& draws) const = 0;
  /// Bytes of such a batch.
  virtual int64_t batch_bytes(const ModelOptions& o, int64_t batch_size, int64_t length) const = 0;

  // ---- cost (model_cost.h), of resolved options -----------------------------------------------

  /// Forward and backward. A weight that a token passes through costs a multiplication and an
  /// addition forward, and twice that backward (gradients of the input and of the weight): 6 FLOPs.
  /// Attention multiplies T x Q values twice forward (scores, then values) and twice as much
  /// backward: 12 T Q per token and layer; a causal one needs half. What a sample does once is
  /// shared by its T tokens. Norms, activations and the optimizer are left out: they are
  /// memory-bound.
  virtual double flops_per_token(const ModelOptions& o, int64_t tokens) const = 0;
  virtual ActivationBytes activation_bytes(const ModelOptions& o, const CostDtypes& dtypes,
                                           int64_t tokens) const = 0;

  // ---- config.json ----------------------------------------------------------------------------

  /// Values of model_type that it reads.
  virtual std::vector<std::string> config_types() const = 0;
  /// Options to build the model with; throws UsageError for what is not supported. dtype is read
  /// and written by the caller.
  virtual ModelOptions read_config(const ConfigObject& config) const = 0;
  virtual Json write_config(const ModelOptions& resolved) const = 0;
  virtual WeightNames weight_names() const { return {}; }

  // ---- verification ---------------------------------------------------------------------------

  /// Smaller sizes that still show every kind of layer, with widths that no tile divides.
  virtual void shrink(ModelOptions& o) const = 0;
  /// For option `frozen`: part of the first block, and one parameter outside of it or of the next.
  virtual std::string frozen_example() const = 0;
  /// The other way round: a few that may be trained alone.
  virtual std::string trained_example() const { return "*.bias"; }
  /// All parameters of the second block.
  virtual std::string second_block_example() const { return "*layers.1.*"; }

 private:
  FamilyDescription description_;
};

/// Fills in head_dim = hidden_dim / num_heads. Throws UsageError where that is not a multiple of
/// `unit` (1 or 2).
void complete_head_dim(ModelOptions& o, int64_t unit);

}  // namespace moonshard::models
