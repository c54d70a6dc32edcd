// Memory of a block's backward, group of layers by group of layers, and of what an engine holds of
// it until the launch that forms the norms of its layers, or their sums, together. Torch-free.
#pragma once

#include <vector>

#include "runtime/plan/block_groups.h"
#include "runtime/plan/kept_blocks.h"
#include "runtime/plan/memory_ledger.h"
#include "runtime/plan/stretch_gradients.h"

namespace moonshard::plan {

/// Passes of backward: the only one; of two, that of the norms, whose activations stay; and that of
/// the sums.
enum class Pass { Only, Norms, Sums };

/// Gradients of parameters are summed up in this pass, over all samples.
inline bool sums_up(const EngineWays& ways, Pass pass) {
  return !ways.is_private || pass == Pass::Sums;
}

class BlockWalk {
 public:
  BlockWalk(const PlannedModel& model, const EngineWays& ways, const MemorySituation& situation,
            const LayerBytes& bytes, const KeptBlocks& kept_blocks, StretchGradients& gradients,
            MemoryLedger& ledger);

  /// Beside the block's activations.
  void forward(size_t stretch);
  /// From the last group to the first. Owners: what a layer's backward is given and makes are
  /// output gradients until an engine holds them.
  void backward(size_t stretch, Pass pass);
  /// (a, g) of a layer, also of one that is in no block, wait for the next launch.
  void hold(const PendingLayer& layer) { pending_.push_back(layer); }
  /// Norms of the stretch before are formed, or in a second pass the sums.
  void launch(Pass pass);

 private:
  void add(Holder holder, double bytes) { ledger_.add(holder, bytes); }
  void free(Holder holder, double bytes) { ledger_.free(holder, bytes); }
  bool is_made_again(size_t group) const { return group + 1 == groups_.size() && again_; }
  bool holds(const KeptBlock& kept, const BlockGroup& group, Pass pass) const;
  bool has_rows_at_once(size_t layer, Pass pass) const;
  void pass_unkept(const KeptBlock& kept);
  void make_product_again(size_t group, Pass pass);
  void form_gradients(size_t stretch, const BlockGroup& group, Pass pass);
  double let_go_of_operands(const KeptBlock& kept, size_t group, Pass pass);
  void reach_input(const KeptBlock& kept, size_t group, Pass pass);
  void hand_over_small(size_t stretch, Pass pass);
  void hold_joined(size_t stretch, double joined, Pass pass);
  double between_adapters() const;
  void sum_joined();

  const PlannedModel& model_;
  const EngineWays& ways_;
  const LayerBytes& bytes_;
  const KeptBlocks& kept_blocks_;
  StretchGradients& gradients_;
  MemoryLedger& ledger_;
  std::vector<BlockGroup> groups_;
  std::vector<GroupBytes> sizes_;  ///< of groups
  double rows_;                    ///< positions of all samples
  double stream_;                  ///< bytes of the stream between blocks
  bool again_;                     ///< makes_product_again
  bool gated_;                     ///< branches of blocks, by a layer of their condition
  std::vector<PendingLayer> pending_;
  const std::vector<LayerWay>* own_ways_ = nullptr;  ///< of the block that backward is in
  size_t joined_stretch_ = 0;
  double joined_bytes_ = 0;
};

}  // namespace moonshard::plan
