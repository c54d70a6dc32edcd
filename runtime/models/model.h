// A model: owned parameters and layers, and per-sample losses of a batch. It knows nothing of
// sharding or privacy: both attach from outside, through the seam and the list of parameters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/core/batch.h"
#include "runtime/models/model_options.h"
#include "runtime/models/parameter.h"

namespace moonshard::models {

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Scores: [B, num_labels] (classify), [B, T, vocab] (lm), [B, D] (regress).
  virtual at::Tensor forward(const Batch& batch) = 0;
  /// One loss per sample [B], float32 or wider.
  virtual at::Tensor losses(const Batch& batch) = 0;

  /// Resolved options: every size is filled in and the task is named.
  const ModelOptions& options() const { return options_; }
  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  const std::vector<std::unique_ptr<ParamLayer>>& layers() const { return layers_; }
  /// The parameter of that name; throws UsageError with the nearest name.
  Parameter& parameter(const std::string& name) const;
  Seam& seam() { return seam_; }

  int64_t num_parameters() const;
  int64_t parameter_bytes() const;

 protected:
  explicit Model(ModelOptions options);

  // Construction. Names follow Hugging Face files; weights start as N(0, std^2) from the seed, each
  // parameter from its own stream, so that the same seed gives the same model in any order or
  // shard.
  ParamLayer& add_linear(const std::string& name, int64_t in, int64_t out, bool bias, double std);
  ParamLayer& add_embedding(const std::string& name, int64_t rows, int64_t width, double std);
  ParamLayer& add_rms_norm(const std::string& name, int64_t width);

  ModelOptions options_;

 private:
  Parameter& add_parameter(const std::string& name, at::IntArrayRef shape, double std, double mean);
  ParamLayer& add_layer(const std::string& name, LayerKind kind, Parameter& weight);

  Seam seam_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<ParamLayer>> layers_;
};

}  // namespace moonshard::models
