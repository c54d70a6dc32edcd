// Gradient rules per kind of layer: from what the seam hands over, (layer, a, g), to gradients and
// their norms. A rule is looked up by the layer's kind; new kinds register their own.
// Shape letters: B samples, T positions (everything between the sample and the last dimension), i
// and o input and output width, V rows of an embedding.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/models/parameter.h"

namespace moonshard::privacy {

/// How the squared norm of a weight's gradient is found without keeping the gradient.
enum class NormMethod {
  Ghost,        ///< inner product of the two Gram matrices A A^T and G G^T, T x T each
  InputLength,  ///< the same, tile by tile: no T x T matrix exists
  Width,        ///< rows of G^T A, tile by tile: no gradient exists
  Materialize   ///< the gradient itself
};

struct NormSettings {
  NormMethod method = NormMethod::Width;
  /// Positions (InputLength) or rows (Width) at a time; 0 chooses. Kernels have tiles of their own.
  int64_t tile_size = 0;
  bool counts_bias = true;
};

/// Gradients of one layer's parameters; undefined where there is none or it is frozen.
struct LayerGradients {
  at::Tensor weight, bias;
};

/// Gradient rule of one kind of layer. Only per_sample is required; the other methods have slower
/// defaults based on it. All results are float32 or wider. The bias, where there is one, adds to
/// the output at every position in every kind, so that its gradient is the sum of g: rules do not
/// see it.
class LayerRule {
 public:
  virtual ~LayerRule() = default;
  /// [B, shape of the weight].
  virtual at::Tensor per_sample(const models::ParamLayer& layer, const at::Tensor& a,
                                const at::Tensor& g) const = 0;
  /// Squared norm of each sample's gradient [B], double. Never too small by more than
  /// rounding of the result itself.
  virtual at::Tensor squares(const models::ParamLayer& layer, const at::Tensor& a,
                             const at::Tensor& g, const NormSettings& settings) const;
  /// sum += sum over samples of factor x gradient, in the weight's shape; factors [B] or undefined
  /// (all 1). An undefined sum is created.
  virtual void add_sum(at::Tensor& sum, const models::ParamLayer& layer, const at::Tensor& a,
                       const at::Tensor& g, const at::Tensor& factors) const;
};

/// Registers or replaces the rule of a kind; null removes it.
void register_rule(const std::string& kind, std::shared_ptr<const LayerRule> rule);
std::vector<std::string> ruled_kinds();
/// Throws UsageError that names the layer and what can be done when its kind has no rule.
void require_rule(const models::ParamLayer& layer);
/// The layer's kind has one of the rules that come with the program, so that what computes the same
/// in another way may stand in for it.
bool has_built_in_rule(const models::ParamLayer& layer);

// ---- of a whole layer, weight and bias, trainable parts only ------------------------------------

LayerGradients per_sample_gradients(const models::ParamLayer& layer, const at::Tensor& a,
                                    const at::Tensor& g);

/// Squared norms [B], double.
at::Tensor squared_norms(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                         const NormSettings& settings);

/// Adds the (weighted) sum over samples to the parameters' grad.
void add_gradients(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                   const at::Tensor& factors = {}, const at::Tensor& bias_factors = {});

/// Squared norms [B], double, of the bias alone.
at::Tensor bias_squares(const at::Tensor& g);

/// Adds the sum over samples of factor x row to the parameter's gradient; rows [B, shape], factors
/// [B], or undefined for all 1. On a GPU the rows may be handed on as they are (Parameter::rows).
void add_rows(models::Parameter& parameter, const at::Tensor& rows, const at::Tensor& factors = {});

/// Adds each sample's gradient of the weight to its row in place; rows [B, shape].
void add_to_rows(at::Tensor& rows, const models::ParamLayer& layer, const at::Tensor& a,
                 const at::Tensor& g);

/// Notifies the ParameterKeeper that the layer's part of this micro-batch is in the grad.
void announce_gradients(const models::ParamLayer& layer);

/// Inner product, per sample [B], double, of the gradients that two uses of one weight have: the
/// cross term of tied weights.
at::Tensor cross_products(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                          const models::ParamLayer& other, const at::Tensor& other_a,
                          const at::Tensor& other_g);

}  // namespace moonshard::privacy
