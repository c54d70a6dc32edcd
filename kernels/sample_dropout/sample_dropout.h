// Dropout whose mask is a function of a sample's word and of the place in the sample alone: a
// second pass, a batch of one and any split into micro-batches and ranks drop the same numbers, and
// no mask is kept, or ever written: each pass draws its coins where it needs them. Every word that
// is drawn decides over four numbers, by 16 bits each, as drawing is what takes time.
//
// On a GPU float32 and bfloat16 take one pass; on the CPU these and float64. The digits are those
// of the references, everywhere.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace moonshard::kernels {

struct DropoutCoins {
  at::Tensor words;        ///< int64 [B], one per sample
  uint64_t stream = 0;     ///< added to each word: layers have streams of their own
  double probability = 0;  ///< of a number to be dropped; applied as a whole number of 1/65,536
  /// Of those, at least one.
  int64_t dropped() const;
  /// What numbers that stay are multiplied by.
  double scale() const;
};

/// x [B, ...] with numbers dropped, and the others scaled: what stays is right on average.
at::Tensor sample_dropout(const at::Tensor& x, const DropoutCoins& coins);
at::Tensor sample_dropout_ref(const at::Tensor& x, const DropoutCoins& coins);

/// sum += part, with numbers of `part` dropped and scaled. Both contiguous, of one dtype and shape.
void add_sample_dropout(at::Tensor& sum, const at::Tensor& part, const DropoutCoins& coins);
void add_sample_dropout_ref(at::Tensor& sum, const at::Tensor& part, const DropoutCoins& coins);

/// The mask by itself, of x's shape and dtype: 0 and scale().
at::Tensor sample_dropout_mask(const at::Tensor& x, const DropoutCoins& coins);

}  // namespace moonshard::kernels
