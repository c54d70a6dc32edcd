#include "runtime/core/random_words.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/check.h"

namespace moonshard {

kernels::ChaChaKey draw_secret_key() {
  kernels::ChaChaKey key;
  static_assert(sizeof key.word == 32);
  if (getentropy(key.word, sizeof key.word) != 0) {
    throw IoError(fmt::format(
        "secure = true: expected 32 bytes from the operating system's generator, got: {}",
        std::strerror(errno)));
  }
  return key;
}

uint64_t RandomWords::word(uint32_t step, uint32_t purpose, uint64_t index) const {
  if (secret_) {  // eight words of 64 bits per block; callers go through them in order
    const kernels::ChaChaWords words = kernels::chacha20(*secret_, index / 8, step, purpose);
    const auto at = static_cast<size_t>(2 * (index % 8));
    return static_cast<uint64_t>(words.word[at + 1]) << 32 | words.word[at];
  }
  const uint64_t block = index / 2;
  const kernels::PhiloxWords words = kernels::philox4x32_10(
      {{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), step, purpose}},
      static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32));
  const auto at = static_cast<size_t>(2 * (index % 2));
  return static_cast<uint64_t>(words.word[at + 1]) << 32 | words.word[at];
}

}  // namespace moonshard
