// Random 64-bit words by index: word `index` of (step, purpose) under a key. From a public seed
// (Philox), or from a secret key of the operating system (ChaCha20).
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/secure_noise/secure_noise.h"

namespace moonshard {

/// 256 bits from the operating system's generator. Throws IoError where it fails.
kernels::ChaChaKey draw_secret_key();

/// A seed for what was given none, from the operating system: one for everything in this process.
/// MOONSHARD_SEED repeats a job's. Throws UsageError where that is no seed.
int64_t drawn_seed();

class RandomWords {
 public:
  explicit RandomWords(uint64_t seed) : seed_(seed) {}
  explicit RandomWords(const kernels::ChaChaKey& secret) : secret_(secret) {}

  uint64_t word(uint32_t step, uint32_t purpose, uint64_t index) const;
  /// Uniform in (0, 1) with 53 bits, never 0 or 1.
  double uniform(uint32_t step, uint32_t purpose, uint64_t index) const {
    return static_cast<double>(word(step, purpose, index) >> 11) * 0x1p-53 + 0x1p-54;
  }
  bool is_secret() const { return secret_.has_value(); }

 private:
  uint64_t seed_ = 0;
  std::optional<kernels::ChaChaKey> secret_;
};

}  // namespace moonshard
