// ChaCha (Bernstein 2008; words as in RFC 8439): a key and a counter in, sixteen random words
// out, no state. Unlike Philox it is cryptographic: some of its words do not reveal others without
// the key.
#pragma once

#include <cstdint>

#include "kernels/common/philox.h"

namespace moonshard::kernels {

struct ChaChaKey {
  uint32_t word[8] = {};
};

struct ChaChaWords {
  uint32_t word[16];
};

MS_HOST_DEVICE void chacha_quarter(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  a += b, d ^= a, d = d << 16 | d >> 16;
  c += d, b ^= c, b = b << 12 | b >> 20;
  a += b, d ^= a, d = d << 8 | d >> 24;
  c += d, b ^= c, b = b << 7 | b >> 25;
}

/// What the rounds begin with, and what is added to them at their end.
MS_HOST_DEVICE ChaChaWords chacha_start(const ChaChaKey& key, uint64_t counter, uint32_t nonce_low,
                                        uint32_t nonce_high) {
  ChaChaWords start;
  start.word[0] = 0x61707865u, start.word[1] = 0x3320646eu;
  start.word[2] = 0x79622d32u, start.word[3] = 0x6b206574u;
  for (int i = 0; i < 8; ++i) start.word[4 + i] = key.word[i];
  start.word[12] = static_cast<uint32_t>(counter);
  start.word[13] = static_cast<uint32_t>(counter >> 32);
  start.word[14] = nonce_low, start.word[15] = nonce_high;
  return start;
}

/// Block `counter` of the stream that the two nonce words name.
template <int kRounds>
MS_HOST_DEVICE ChaChaWords chacha(const ChaChaKey& key, uint64_t counter, uint32_t nonce_low,
                                  uint32_t nonce_high) {
  const ChaChaWords start = chacha_start(key, counter, nonce_low, nonce_high);
  ChaChaWords x = start;
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int twice = 0; twice < kRounds / 2; ++twice) {
    chacha_quarter(x.word[0], x.word[4], x.word[8], x.word[12]);
    chacha_quarter(x.word[1], x.word[5], x.word[9], x.word[13]);
    chacha_quarter(x.word[2], x.word[6], x.word[10], x.word[14]);
    chacha_quarter(x.word[3], x.word[7], x.word[11], x.word[15]);
    chacha_quarter(x.word[0], x.word[5], x.word[10], x.word[15]);
    chacha_quarter(x.word[1], x.word[6], x.word[11], x.word[12]);
    chacha_quarter(x.word[2], x.word[7], x.word[8], x.word[13]);
    chacha_quarter(x.word[3], x.word[4], x.word[9], x.word[14]);
  }
  for (int i = 0; i < 16; ++i) x.word[i] += start.word[i];
  return x;
}

/// With all 20 rounds: where few words are drawn.
MS_HOST_DEVICE ChaChaWords chacha20(const ChaChaKey& key, uint64_t counter, uint32_t nonce_low,
                                    uint32_t nonce_high) {
  return chacha<20>(key, counter, nonce_low, nonce_high);
}

}  // namespace moonshard::kernels
