#include "runtime/sharding/flat_layout.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace moonshard::sharding {
namespace {

// Parameters are aligned for matrix products: 128 bytes in 16-bit dtypes.
constexpr int64_t kAlignment = 64;

int64_t aligned(int64_t position) {
  return (position + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<models::Parameter*>& parameters, int own_rank, int ranks)
    : rank(own_rank), world(ranks) {
  int64_t end = 0;
  for (models::Parameter* parameter : parameters) {
    Piece piece;
    piece.parameter = parameter;
    piece.numel = parameter->value.numel();
    piece.offset = aligned(end);
    piece.shape =
        at::empty(parameter->value.sizes(), parameter->value.options().device(c10::kMeta));
    end = piece.offset + piece.numel;
    pieces.push_back(std::move(piece));
  }
  // Parts start at aligned offsets, too: with a short row the last ranks hold only padding.
  shard_size = aligned((end + world - 1) / world);
  for (Piece& piece : pieces) {
    const int64_t begin = std::max(piece.offset, shard_size * rank);
    const int64_t stop = std::min(piece.offset + piece.numel, shard_size * (rank + 1));
    piece.first = begin - piece.offset;
    piece.count = std::max<int64_t>(stop - begin, 0);
    if (piece.count == 0) piece.first = 0;
  }
}

at::Tensor FlatLayout::whole_view(const at::Tensor& row, const Piece& piece) {
  return row.narrow(0, piece.offset, piece.numel).view(piece.shape.sizes());
}

at::Tensor FlatLayout::own_view(const at::Tensor& part, const Piece& piece) const {
  const int64_t position = piece.count == 0 ? 0 : piece.offset + piece.first - shard_size * rank;
  return part.narrow(0, position, piece.count);
}

void FlatLayout::clear_gaps(at::Tensor& row) const {
  int64_t end = 0;
  const auto clear = [&](int64_t from, int64_t to) {
    if (from < to) row.narrow(0, from, to - from).zero_();
  };
  for (const Piece& piece : pieces) {
    clear(end, piece.offset);
    end = piece.offset + piece.numel;
  }
  clear(end, row.numel());
}

}  // namespace moonshard::sharding
