// Several parameters flattened into one row and cut into equal parts, one per rank. A cut may fall
// inside a parameter; the last parts may be padding only. All ranks compute the same layout.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/models/parameter.h"

namespace moonshard::sharding {

/// A parameter in the row, and the part of it that this rank keeps.
struct Piece {
  models::Parameter* parameter = nullptr;
  int64_t numel = 0;
  int64_t offset = 0;            ///< of the parameter in the row
  int64_t first = 0, count = 0;  ///< this rank's elements of the flattened parameter; may be none
  at::Tensor shape;  ///< without storage: placeholder while the parameter is not gathered
};

struct FlatLayout {
  FlatLayout() = default;
  FlatLayout(const std::vector<models::Parameter*>& parameters, int rank, int world);

  std::vector<Piece> pieces;
  int64_t shard_size = 0;
  int rank = 0, world = 1;

  bool empty() const { return pieces.empty(); }
  int64_t padded() const { return shard_size * world; }
  /// A piece's parameter in its own shape, inside a whole row.
  static at::Tensor whole_view(const at::Tensor& row, const Piece& piece);
  /// This rank's elements of the parameter [count], inside its part of the row.
  at::Tensor own_view(const at::Tensor& part, const Piece& piece) const;
  /// Zeroes the padding.
  void clear_gaps(at::Tensor& row) const;
};

}  // namespace moonshard::sharding
