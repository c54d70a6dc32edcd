// The part of position_lengths that needs no ATen.
#pragma once

#include <cstdint>

namespace moonshard::kernels {

/// Rows whose lengths are computed: [samples, positions, width], rows contiguous.
struct LengthRows {
  const void* data = nullptr;
  int64_t samples = 0, positions = 0, width = 0;
  int64_t row_stride = 0, sample_stride = 0;  ///< elements
  bool bfloat16 = true;                       ///< otherwise float32
};

/// L = sum over positions of the product of two row sets' lengths.
struct LengthPair {
  int a = 0, g = 0;  ///< indices of the row sets; kNoRows: the lengths are known
};

/// How the squared norm of a pair was found; that decides its margin (norm_margins.h).
enum class NormSource {
  Gram,        ///< from Gram matrices, with the sum of absolute values beside it
  Gradient,    ///< from the gradient's elements
  OnePosition  ///< one outer product: its squared norm is that of the two rows, multiplied
};

constexpr int kNoRows = -1;

struct SquareTerm {
  NormSource source = NormSource::OnePosition;
  const double* value = nullptr;      ///< [samples]; not of OnePosition
  const double* magnitude = nullptr;  ///< [samples]; of Gram
  double gain = 1;                    ///< value is multiplied by it; of Gradient
  double underflow = 0;               ///< times the spread: lost products; of Gram
  /// [samples], or null: bounds that are known, so that no rows are read.
  const double* length = nullptr;
  const double* spread = nullptr;
};

// Launch limits: tables are kernel parameters.
constexpr int kMostLengthRows = 32;
constexpr int kMostLengthPairs = 16;

/// lengths [pairs, samples] in double, rounded up by 1e-5; spreads likewise, or null. scratch: one
/// double per row of all sets.
void launch_position_lengths(const LengthRows* rows, int num_rows, const LengthPair* pairs,
                             int num_pairs, double* scratch, double* lengths, double* spreads,
                             void* cuda_stream);

/// squares [pairs, samples] in double, never too small: what `terms` has, one per pair, with the
/// margin that the lengths of the pair's rows ask for. scratch as above.
void launch_bounded_squares(const LengthRows* rows, int num_rows, const LengthPair* pairs,
                            const SquareTerm* terms, int num_pairs, int64_t samples,
                            double* scratch, double* squares, void* cuda_stream);

}  // namespace moonshard::kernels
