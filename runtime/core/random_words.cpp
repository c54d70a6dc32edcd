#include "runtime/core/random_words.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdlib>
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

int64_t drawn_seed() {
  static const int64_t seed = [] {
    if (const char* given = std::getenv("MOONSHARD_SEED")) {
      const std::string digits = given;
      MS_CHECK(!digits.empty() && digits.size() <= 15 &&
                   digits.find_first_not_of("0123456789") == std::string::npos,
               "MOONSHARD_SEED: expected a whole number of at most 15 digits, got '{}'", digits);
      return static_cast<int64_t>(std::stoll(digits));
    }
    // 52 bits, which every number of Lua and JSON holds exactly.
    const kernels::ChaChaKey bits = draw_secret_key();
    return static_cast<int64_t>((static_cast<uint64_t>(bits.word[0]) << 32 | bits.word[1]) >> 12);
  }();
  return seed;
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
