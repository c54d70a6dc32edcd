// What blocks keep from forward to backward, tensor by tensor. Torch-free.
#pragma once

#include <string>
#include <vector>

#include "runtime/plan/layer_bytes.h"

namespace moonshard::plan {

/// Bytes that one block keeps.
struct KeptBlock {
  struct Group {
    double input = 0, output = 0;  ///< outputs behind norms alone are kept
  };
  std::vector<Group> groups;
  double others = 0;  ///< inputs of norms, and what these have found
  double whole = 0;
  double made_again = 0;  ///< what is there only while it runs, where backward runs it again
  bool is_usual = true;   ///< its layers are trained as those of PlannedModel::block
};

/// Whether a layer of a stretch, or an adapter beside it, has a gradient of its own.
bool is_used(const std::vector<PlannedLayer>& stretch, size_t layer);

/// As option checkpointing says. Of a CPU's blocks what layers that are not trained do not keep is
/// left out: their inputs, and in the first block that backward reaches what comes before the first
/// layer that is trained; but not where that block is trained in another way than most. A GPU's
/// plans were checked with all of it.
class KeptBlocks {
 public:
  KeptBlocks(const PlannedModel& model, const models::ActivationBytes& kept,
             const LayerBytes& bytes, double rows, const std::string& checkpointing, int64_t every);

  const KeptBlock& of(size_t stretch) const {
    return stretch == model_.first_in_backward && !model_.fused ? first_ : usual_;
  }
  /// Of a block that backward runs again: what is there only while it runs; else nothing.
  double made_again(size_t stretch) const {
    return recomputes_ && static_cast<int64_t>(stretch - 1) % every_ == 0 ? of(stretch).made_again
                                                                          : 0;
  }

 private:
  void leave_out_untrained_inputs();
  void leave_out_before_first_trained();
  bool is_used(size_t layer) const { return plan::is_used(model_.block, layer); }
  bool condition_is_trained() const;
  double stream() const { return bytes_.stream(static_cast<double>(model_.options().hidden_dim)); }

  const PlannedModel& model_;
  const LayerBytes& bytes_;
  std::vector<BlockGroup> groups_;
  KeptBlock usual_, first_;  ///< the latter of a CPU
  bool recomputes_;
  int64_t every_;
};

}  // namespace moonshard::plan
