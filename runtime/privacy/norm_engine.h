// Base class of the norm engines. Each layer has a plan: how its norm is found at the
// seam, and what is kept until the factors are known. ghost, flash, bookkeeping and materialize
// are plans; this file carries them out.
//
// Norms are one running sum of squares per sample and bound: of all parameters (flat), of one layer
// (per_layer), or of a group of parameters (groups). Layers that share a weight form a group, whose
// norm includes the cross terms of its uses. With per-layer clipping a group's factors are known as
// soon as the group is complete, and its sum is formed at once.
#pragma once

#include <map>
#include <set>

#include "runtime/privacy/block_norms.h"
#include "runtime/privacy/clip_engine.h"
#include "runtime/privacy/layer_rules.h"

namespace moonshard::privacy {

/// Lanes of zones (profile/timeline.h): parts of the norm computation. Local is per layer.
inline constexpr const char* kLocalNorms = "norm local";
inline constexpr const char* kNormStacking = "norm stacking";
inline constexpr const char* kNormReduce = "norm reduce";
inline constexpr const char* kNormFinal = "norm final";

/// Squared norms [B] of one layer by a custom function instead of its rule.
using NormFunction = std::function<at::Tensor(const models::ParamLayer& layer, const at::Tensor& a,
                                              const at::Tensor& g)>;

struct LayerPlan {
  NormSettings norm;
  Keep keep = Keep::Inputs;
  NormFunction custom_norm;  ///< instead of `norm`, when set
  /// Keep::Gradients: in 16 bits, and the norm of what is kept, where a kernel does that.
  bool compact = false;
  /// Keep::Inputs: compact gradients instead, where a kernel keeps them and they are smaller.
  bool compact_if_smaller = false;
};

class NormEngine : public ClipEngine {
 public:
  explicit NormEngine(std::shared_ptr<Clipping> clipping) : clipping_(std::move(clipping)) {}
  bool is_private() const override { return true; }

  void begin(models::Model& model, const MicroBatch& micro) override;
  bool needs_second_pass() const override { return needs_second_pass_; }
  void consume(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) override;
  bool takes_rows(const models::ParamLayer& layer) const override;
  void consume_rows(const models::ParamLayer& layer, const at::Tensor& weight_rows,
                    const at::Tensor& bias_rows) override;
  bool takes_samples(const models::ParamLayer& layer) const override { return takes_rows(layer); }
  void consume_samples(const models::ParamLayer& layer, int64_t samples,
                       const models::AddSample& add) override;
  ClipReport clip(profile::PhaseTimer& timer) override;
  void end_second_pass() override;
  void reduce_norms_by(NormReduction reduction) override { norm_reduction_ = std::move(reduction); }
  void use_hooks(StepHooks& hooks) override { hooks_ = &hooks; }
  int64_t kept_bytes() const override { return peak_kept_bytes_; }

 protected:
  /// Once per micro-batch, before the forward pass: the plan's outline, which decides whether a
  /// second pass is needed.
  virtual Keep plan_keep(const models::Model& model, const MicroBatch& micro) = 0;
  /// At the seam, where shapes are known.
  virtual LayerPlan plan_layer(const models::ParamLayer& layer, const at::Tensor& a,
                               const at::Tensor& g) = 0;
  /// Norms come from a function of (a, g) that must see them.
  virtual bool has_custom_norms() const { return false; }
  /// The layer's weight has other uses: all of them must keep the same, for the cross term.
  bool is_shared(const models::ParamLayer& layer) const;
  /// Layers with a trained weight that read the layer's input, itself included.
  int64_t readers(const models::ParamLayer& layer) const;

 private:
  struct Use {
    const models::ParamLayer* layer;
    at::Tensor a, g;
    Keep keep;
  };
  /// Of all compact rows of a launch. With one bound they are weighted together, when the first of
  /// its layers is summed.
  struct UnitsOfLaunch {
    at::Tensor all;  ///< [B, n]
    bool are_weighted = false;
  };
  struct Rows {
    models::Parameter* parameter = nullptr;
    at::Tensor rows;   ///< [B, shape]
    at::Tensor units;  ///< of compact rows (flash_norm.h); their norm is known then
    std::shared_ptr<UnitsOfLaunch> launch;  ///< that the units are a part of
  };
  struct Group {
    std::string name;
    std::vector<const models::ParamLayer*> layers;
    int64_t pending = 0;  ///< uses that backward has not reached yet
    std::vector<Use> uses;
    // By the model's order of parameters, not by address: the same run gives the same digits.
    std::map<uint32_t, Rows> per_sample;
    std::map<size_t, at::Tensor> squares;  ///< by the bound that they count for
    at::Tensor magnitude;                  ///< of shared weights: sum of the uses' norms
  };

  /// What groups are formed by.
  struct FormedBy {
    std::vector<const models::ParamLayer*> layers;  ///< all of the model's
    std::vector<bool> trained;                      ///< weight and bias of each
    bool joins_tied_weights = true;
    bool operator==(const FormedBy&) const = default;
  };
  void form_groups(models::Model& model);
  void empty_groups();
  /// The bound that a parameter of the group counts for, a place in shares_.
  size_t bound_of(const Group& group, const models::Parameter& parameter) const;
  size_t weight_bound(const models::ParamLayer& layer) const;
  /// A trained bias that counts for another bound than the trained weight.
  bool has_bias_apart(const models::ParamLayer& layer) const;
  static void add_squares(std::map<size_t, at::Tensor>& sums, size_t bound,
                          const at::Tensor& squares);
  at::Tensor layer_norm_squares(const models::ParamLayer& layer, const at::Tensor& a,
                                const at::Tensor& g, const LayerPlan& plan) const;
  at::Tensor cross_terms(const Group& group, const models::ParamLayer& layer, const at::Tensor& a,
                         const at::Tensor& g) const;
  Group& first_use(const models::ParamLayer& layer, int64_t samples);
  void keep_rows(Group& group, models::Parameter* parameter, const at::Tensor& rows);
  bool adds_to_samples(const Group& group, const models::ParamLayer& layer) const;
  void add_to_samples(Group& group, const models::ParamLayer& layer, const at::Tensor& a,
                      const at::Tensor& g);
  void sum_samples(const models::ParamLayer& layer, int64_t samples, const models::AddSample& add);
  void join_launch(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g,
                   const LayerPlan& plan);
  void launch_joined();
  void consume_again(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g);
  void sum_joined();
  void complete(Group& group);
  void add_squares_of_rows(Group& group);
  void add_late_squares();
  bool needs_group_norms() const { return clipping_->per_layer() || micro_.record_layers; }
  void add_by_rules(const models::ParamLayer& layer, const at::Tensor& a, const at::Tensor& g);
  void take_sums(Group& group, std::vector<std::vector<LinearTask>>& joined);
  void sum_all();
  void sum_one(Group& group);
  void add_joined(std::vector<std::vector<LinearTask>>& joined) const;
  at::Tensor weighted_units(Rows& own, const at::Tensor& factors) const;
  void announce(const Group& group) const;
  void announce(const models::ParamLayer& layer) const;
  int64_t kept_now() const;

  at::Tensor factors_of(const at::Tensor& norms, double share) const;

  std::shared_ptr<Clipping> clipping_;
  NormReduction norm_reduction_;
  StepHooks* hooks_ = &no_hooks();
  MicroBatch micro_;
  at::ScalarType sum_type_ = at::kFloat;  ///< dtype that sums are formed in
  bool needs_second_pass_ = false, in_second_pass_ = false;
  FormedBy formed_by_;
  std::vector<Group> groups_;
  std::vector<int64_t> group_of_layer_;   ///< by layer index; -1 for frozen layers
  std::set<int64_t> shared_;              ///< groups of more than one layer
  std::vector<int64_t> readers_;          ///< by the index of the first layer that reads an input
  std::vector<bool> seen_;                ///< by layer index
  std::vector<size_t> bound_of_;          ///< by parameter index; not with per-layer clipping
  std::vector<double> shares_;            ///< by bound: its part of C
  std::map<size_t, at::Tensor> squares_;  ///< by bound: [B], double
  std::vector<at::Tensor> factors_;       ///< by bound: [B], as sums take them
  std::vector<LinearTask> joined_;        ///< of the block that backward is in
  /// By bound: [B, n] on a GPU, whose squares are computed together.
  std::map<size_t, std::vector<at::Tensor>> late_rows_;
  /// By bound: [n, B] of joined layers, which are added up together.
  std::map<size_t, std::vector<at::Tensor>> late_squares_;
  std::vector<LayerNorms> recorded_;
  int64_t peak_kept_bytes_ = 0;
};

}  // namespace moonshard::privacy
