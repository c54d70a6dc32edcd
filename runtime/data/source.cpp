#include "runtime/data/source.h"

#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/models/batch_check.h"
#include "runtime/models/registry.h"

namespace moonshard::data {

SyntheticData::SyntheticData(const models::ModelOptions& model, int64_t batch_size,
                             int64_t seq_length, int rank, int world)
    : model_(model),
      batch_size_(batch_size),
      seq_length_(seq_length),
      rank_(static_cast<uint64_t>(rank)),
      world_(static_cast<uint64_t>(world)) {
  MS_CHECK(batch_size > 0, "data.synthetic: expected batch_size > 0, got {}", batch_size);
  MS_CHECK(seq_length > 0, "data.synthetic: expected seq_length > 0, got {}", seq_length);
}

Batch SyntheticData::next() {
  // A key of its own per batch: it depends on (seed, its number) alone.
  const uint64_t key =
      (static_cast<uint64_t>(model_.seed) + 1) * 0x9E3779B97F4A7C15ull + position_ + rank_;
  position_ += world_;
  models::BatchDraws draws(key, resolve_device(model_.device));
  return models::family_of(model_).synthetic_batch(model_, batch_size_, seq_length_, draws);
}

}  // namespace moonshard::data
