// What the passes of a block go through, from its layers alone. Layers that read one input are a
// group; groups in forward order are, in turn, behind a norm (q, k, v; gate, up) and behind an
// operation on the group before (attention; the activation). Torch-free.
#pragma once

#include <vector>

#include "runtime/plan/planned_model.h"

namespace moonshard::plan {

struct BlockGroup {
  double in = 0, out = 0;                ///< elements of a position; out: of all its layers
  std::vector<size_t> layers, adapters;  ///< these beside the layers
  bool behind_norm = true;
};

std::vector<BlockGroup> block_groups(const PlannedModel& model);

/// Whether the operation between the first two groups is attention.
bool attends(const PlannedModel& model, const std::vector<BlockGroup>& groups);

/// Fused, gate and up alone are kept: backward makes their product again, beside the gradients.
bool makes_product_again(const PlannedModel& model, const std::vector<BlockGroup>& groups);

/// Bytes of what dropout of a group's adapters has under way, of so many positions: an adapter's
/// input with numbers dropped, or in backward what it gives before it is added.
double dropout_working(const PlannedModel& model, const BlockGroup& group, double positions);

/// Copies of the queries' gradient that the kernel of attention's backward adds up where two passes
/// must see the same bits: where the GPU has more processors than there are samples times heads,
/// several of them share one sample's head, each with a copy of its own.
double ordered_copies(const PlannedModel& model, double samples);

/// Bytes of scores that a CPU's forward holds beside what is kept of them, of so many positions,
/// while they are scaled, capped and hidden (models/blocks/attention.cpp).
double scores_in_forward(const PlannedModel& model, double positions);

/// Bytes that attention's backward needs beside what it is given and makes, of so many positions. A
/// GPU's kernel adds up gradients of queries in float32, and makes those of keys and values for
/// each head.
double attention_working(const PlannedModel& model, const std::vector<BlockGroup>& groups,
                         double positions, bool two_passes);

}  // namespace moonshard::plan
