// Weights and samples that show mistakes: nothing is zero, ids repeat, some samples are extreme.
#pragma once

#include <memory>

#include "runtime/core/batch.h"
#include "runtime/data/source.h"
#include "runtime/models/model.h"
#include "runtime/verify/cases.h"

namespace moonshard::verify {

/// Zero-initialised parameters (adaLN-Zero, biases) would hide errors in what they multiply.
void move_off_zero(models::Model& model);

Batch make_batch(const models::Model& model, const Variant& variant);

/// Samples that stretch a bound: one twice, and where inputs are numbers some that are huge, tiny,
/// infinite and not a number.
Batch make_difficult_batch(const models::Model& model, const Variant& variant);

/// These samples of the batch, in this order.
Batch chosen_samples(const Batch& batch, const std::vector<int64_t>& samples);

/// The batch's samples as examples to draw from.
std::shared_ptr<data::Dataset> as_dataset(const Batch& batch);

}  // namespace moonshard::verify
