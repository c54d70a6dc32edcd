// A model: owned parameters and layers, and per-sample losses of a batch. It contains no
// sharding or privacy code: both attach from outside, through the seam and the list of parameters.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/core/batch.h"
#include "runtime/core/random_words.h"
#include "runtime/models/model_options.h"
#include "runtime/models/parameter.h"

namespace moonshard::models {

/// Which trainer has updated a model's weights last: trainers keep accounts of their own steps
/// only.
/// Of the model and all its trainers together, which may run on several threads.
class LastTrainer {
 public:
  /// 0 before the first.
  int64_t id() const { return id_.load(); }
  /// Returns the one before.
  int64_t exchange(int64_t id) { return id_.exchange(id); }

 private:
  std::atomic<int64_t> id_{0};
};

/// What the two layers of an adapter are called behind their linear layer's name, as PEFT has it.
inline constexpr const char *kAdapterDown = ".lora_A", *kAdapterUp = ".lora_B";
/// Whether a parameter of that name is an adapter's.
bool is_adapter_name(const std::string& name);

/// While it lives, the model's layers see the words of the batch that they train on.
class WordsInUse {
 public:
  WordsInUse(Seam& seam, const Batch& batch) : seam_(seam) { seam_.words = batch.words; }
  ~WordsInUse() { seam_.words = at::Tensor(); }
  WordsInUse(const WordsInUse&) = delete;
  WordsInUse& operator=(const WordsInUse&) = delete;

 private:
  Seam& seam_;
};

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Scores: [B, num_labels] (classify), [B, T, vocab] (lm), [B, D] (regress), [B, C, H, W]
  /// (denoise).
  virtual at::Tensor forward(const Batch& batch) = 0;
  /// One loss per sample [B], float32 or wider.
  virtual at::Tensor losses(const Batch& batch) = 0;
  /// What a training step does to its batch first: draws of the model itself, such as dropped
  /// labels. `first` is the number of samples before these in the step: a draw depends on (words,
  /// step, position) alone, however the step is split. In private training the words are secret:
  /// one sample more shifts the others' positions, which hides among draws that nobody knows.
  virtual Batch prepare(const Batch& batch, const RandomWords& words, int64_t step,
                        int64_t first = 0) const;
  /// Goes on as a run with that seed did; the weights stay.
  void use_seed(int64_t seed) { options_.seed = seed; }
  /// Words of the model's own seed, which is no secret.
  RandomWords seed_words() const { return RandomWords(static_cast<uint64_t>(options_.seed)); }
  /// Whether prepare looks at `first`: with several ranks it needs one extra collective.
  virtual bool draws_by_position() const { return options_.lora_dropout > 0; }
  /// Throws UsageError when the batch does not fit the task: a field that is missing or of another
  /// shape, a label out of range, padding on the left. By itself it expects vectors and targets.
  virtual void check(const Batch& batch) const;
  /// Positions that the model computes for the batch.
  virtual int64_t count_tokens(const Batch& batch) const;

  /// Resolved options: every size is filled in and the task is named.
  const ModelOptions& options() const { return options_; }
  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  const std::vector<std::unique_ptr<ParamLayer>>& layers() const { return layers_; }
  /// The parameter of that name; throws UsageError with the nearest name.
  Parameter& parameter(const std::string& name) const;
  Seam& seam() { return seam_; }
  const std::shared_ptr<LastTrainer>& last_trainer() const { return last_trainer_; }

  /// Parameters that match a glob ("*.norm.*") are left out of training. Throws UsageError when a
  /// glob matches nothing. Returns how many matched.
  int64_t freeze(const std::string& glob);
  /// Gives every linear layer whose name matches one of lora_targets an adapter, as the options
  /// say. Once, after construction: the parameters that the layers have by themselves then start
  /// with the same numbers as without.
  void add_adapters();

  /// Whether the options let a parameter of that name be trained; it may have been frozen since.
  bool starts_trained(const std::string& name) const;

  /// Whether all layers compute in float64: factors and sums are then float64, too.
  bool computes_in_double() const;
  /// What a parameter is kept in: frozen ones in the compute dtype, where that is narrower.
  at::ScalarType kept_type(const Parameter& parameter) const;

  /// Initialises a parameter at random. Models with `weights` start without values: the loader
  /// calls this for what the file does not have.
  void initialise(Parameter& parameter) const;
  /// The same for a range of it: numbers first, first + 1, … of the flattened parameter. From the
  /// source of ranges where there is one and it has them, else drawn.
  void initialise_range(const Parameter& parameter, at::Tensor& range, int64_t first) const;
  using RangeSource = std::function<bool(const Parameter&, at::Tensor& range, int64_t first)>;
  /// The newest source is asked first.
  void take_ranges_from(RangeSource source);
  /// Whether frozen parameters still are as the files of option weights had them.
  bool has_values_of_files() const { return has_values_of_files_; }
  void values_are_replaced() { has_values_of_files_ = false; }
  /// Of a deferred model: whether its parameters are still to be drawn or read, by parts.
  bool awaits_values() const { return awaits_values_; }
  void values_are_placed() { awaits_values_ = false; }

  int64_t num_parameters() const;
  int64_t parameter_bytes() const;

 protected:
  explicit Model(ModelOptions options);

  /// Whether a layer of the block is trained now.
  bool trains_block(size_t block) const;

  // Construction. Names follow Hugging Face files; weights start as N(0, std^2) from the seed, each
  // parameter from its own stream, so that the same seed gives the same model in any order or
  // shard.
  ParamLayer& add_linear(const std::string& name, int64_t in, int64_t out, bool bias, double std);
  ParamLayer& add_embedding(const std::string& name, int64_t rows, int64_t width, double std,
                            int64_t padding_id = -1);
  ParamLayer& add_rms_norm(const std::string& name, int64_t width);
  ParamLayer& add_layer_norm(const std::string& name, int64_t width);
  ParamLayer& add_patch_embedding(const std::string& name, int64_t channels, int64_t patch,
                                  int64_t width, bool bias, double std);
  /// The parameter has the layer's own name, as in published files ("pos_embed").
  ParamLayer& add_position_table(const std::string& name, int64_t tokens, int64_t width,
                                 double std);
  /// A Linear without bias that uses the other layer's weight.
  ParamLayer& add_tied_linear(const std::string& name, ParamLayer& owner);
  /// For custom kinds of layers: a parameter from N(mean, std^2), and a layer that uses it.
  Parameter& add_parameter(const std::string& name, at::IntArrayRef shape, double std, double mean);
  ParamLayer& add_layer(const std::string& name, const char* kind, Parameter& weight);

  /// Layers that are added from here on belong to a new block, or (-1) to none. Blocks are what
  /// checkpointing and sharding take as units.
  void begin_block() { block_ = num_blocks_++; }
  void end_block() { block_ = -1; }

  ModelOptions options_;

 private:
  struct Start {
    double std, mean;
    int64_t zero_row = -1;  ///< of an embedding: the padding id's
  };

  Seam seam_;
  std::shared_ptr<LastTrainer> last_trainer_ = std::make_shared<LastTrainer>();
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<Start> starts_;  ///< by parameter
  RangeSource range_source_;
  bool awaits_values_ = false, has_values_of_files_ = true;
  std::vector<std::unique_ptr<ParamLayer>> layers_;
  int64_t block_ = -1, num_blocks_ = 0;
};

}  // namespace moonshard::models
