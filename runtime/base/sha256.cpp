#include "runtime/base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__aarch64__) && (!defined(__clang__) || defined(__ARM_FEATURE_SHA2))
#define MS_SHA256_ARM 1
#include <arm_neon.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#define MS_SHA256_X86 1
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace moonshard {
namespace {

// Fractions of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2).
alignas(16) constexpr uint32_t kRoundWords[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// Those of the square roots of the first eight (5.3.3).
constexpr std::array<uint32_t, 8> kFirstState = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

uint32_t big_endian_word(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// FIPS 180-4, 6.2.2, with its names of the working variables.
void compress_portable(uint32_t* state, const uint8_t* data, size_t blocks) {
  using std::rotr;
  for (; blocks > 0; --blocks, data += Sha256::kBlockBytes) {
    uint32_t w[64];
    for (int t = 0; t < 16; ++t) w[t] = big_endian_word(data + 4 * t);
    for (int t = 16; t < 64; ++t) {
      const uint32_t x = w[t - 15], y = w[t - 2];
      w[t] = w[t - 16] + w[t - 7] + (rotr(x, 7) ^ rotr(x, 18) ^ x >> 3) +
             (rotr(y, 17) ^ rotr(y, 19) ^ y >> 10);
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
#pragma GCC unroll 8  // the letters change places without moving
    for (int t = 0; t < 64; ++t) {
      const uint32_t t1 = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) +
                          kRoundWords[t] + w[t];
      const uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1;
      d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
  }
}

#if defined(MS_SHA256_ARM)

bool is_fast() {
  return (getauxval(AT_HWCAP) & HWCAP_SHA2) != 0;
}

// Four rounds at a time; w has the last sixteen words of the schedule.
__attribute__((target("+crypto"))) void compress_fast(uint32_t* state, const uint8_t* data,
                                                      size_t blocks) {
  uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
  for (; blocks > 0; --blocks, data += Sha256::kBlockBytes) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4];
    for (int i = 0; i < 4; ++i) w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)));
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const uint32x4_t words = vaddq_u32(w[i % 4], vld1q_u32(kRoundWords + 4 * i));
      const uint32x4_t old = abcd;
      abcd = vsha256hq_u32(abcd, efgh, words);
      efgh = vsha256h2q_u32(efgh, old, words);
      w[i % 4] = vsha256su1q_u32(vsha256su0q_u32(w[i % 4], w[(i + 1) % 4]), w[(i + 2) % 4],
                                 w[(i + 3) % 4]);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

#elif defined(MS_SHA256_X86)

bool is_fast() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0 &&
         __builtin_cpu_supports("sse4.1") != 0;
}

// The instruction for both (palignr) has a header that multiplies its constant, which is none any
// more for a compiler that checks multiplications.
__attribute__((target("sse4.1"))) inline __m128i halves_between(__m128i low, __m128i high) {
  return _mm_castpd_si128(_mm_shuffle_pd(_mm_castsi128_pd(low), _mm_castsi128_pd(high), 1));
}
__attribute__((target("sse4.1"))) inline __m128i words_after_first(__m128i low, __m128i high) {
  return _mm_shuffle_epi32(_mm_blend_epi16(low, high, 0x03), 0x39);
}

// Four rounds at a time; w has the last sixteen words of the schedule. The instructions want the
// state as (a, b, e, f) and (c, d, g, h), highest word first.
__attribute__((target("sha,sse4.1"))) void compress_fast(uint32_t* state, const uint8_t* data,
                                                         size_t blocks) {
  const __m128i byte_order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto* lower = reinterpret_cast<__m128i*>(state);
  auto* upper = reinterpret_cast<__m128i*>(state + 4);
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(lower), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(upper), 0x1b);
  __m128i abef = halves_between(efgh, cdab), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; blocks > 0; --blocks, data += Sha256::kBlockBytes) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) {
      const auto* from = reinterpret_cast<const __m128i*>(data + 16 * i);
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(from), byte_order);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const auto* constants = reinterpret_cast<const __m128i*>(kRoundWords + 4 * i);
      const __m128i words = _mm_add_epi32(w[i % 4], _mm_load_si128(constants));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(words, 0x0e));
      const __m128i between = words_after_first(w[(i + 2) % 4], w[(i + 3) % 4]);
      w[i % 4] = _mm_sha256msg2_epu32(
          _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]), between), w[(i + 3) % 4]);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(lower, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(upper, halves_between(feba, dchg));
}

#else

bool is_fast() {
  return false;
}
constexpr auto compress_fast = compress_portable;

#endif

std::string hex_of(const Sha256::Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte / 16];
    text += "0123456789abcdef"[byte % 16];
  }
  return text;
}

}  // namespace

bool has_sha256_instructions() {
  static const bool fast = is_fast();
  return fast;
}

Sha256::Sha256(Way way)
    : compress_(way == Way::Fastest && has_sha256_instructions() ? compress_fast
                                                                 : compress_portable),
      state_(kFirstState),
      tail_{} {}

void Sha256::add(const void* data, size_t bytes) {
  const auto* from = static_cast<const uint8_t*>(data);
  const size_t waiting = bytes_ % kBlockBytes;
  bytes_ += bytes;
  if (waiting > 0) {
    const size_t taken = std::min(bytes, kBlockBytes - waiting);
    if (taken > 0) std::memcpy(tail_.data() + waiting, from, taken);
    from += taken, bytes -= taken;
    if (waiting + taken < kBlockBytes) return;
    compress_(state_.data(), tail_.data(), 1);
  }
  compress_(state_.data(), from, bytes / kBlockBytes);
  const size_t left = bytes % kBlockBytes;
  if (left > 0) std::memcpy(tail_.data(), from + (bytes - left), left);
}

Sha256::Digest Sha256::digest() const {
  // A one, zeros up to eight bytes before the end of a block, and the number of bits.
  Sha256 padded = *this;
  std::array<uint8_t, kBlockBytes + 8> padding{0x80};
  const size_t zeros = (2 * kBlockBytes - 9 - bytes_ % kBlockBytes) % kBlockBytes;
  for (size_t i = 0; i < 8; ++i)
    padding[1 + zeros + i] = static_cast<uint8_t>(8 * bytes_ >> (56 - 8 * i));
  padded.add(padding.data(), 1 + zeros + 8);
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<uint8_t>(padded.state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

std::string Sha256::hex() const {
  return hex_of(digest());
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::array<uint8_t, Sha256::kBlockBytes> inner{}, outer{};
  if (key.size() <= inner.size()) {
    std::copy(key.begin(), key.end(), inner.begin());
  } else {
    Sha256 shortened;
    shortened.add(key);
    const Sha256::Digest digest = shortened.digest();
    std::copy(digest.begin(), digest.end(), inner.begin());
  }
  for (size_t i = 0; i < inner.size(); ++i) {
    outer[i] = inner[i] ^ 0x5c;
    inner[i] ^= 0x36;
  }
  Sha256 first, second;
  first.add(inner.data(), inner.size());
  first.add(text);
  const Sha256::Digest digest = first.digest();
  second.add(outer.data(), outer.size());
  second.add(digest.data(), digest.size());
  return second.hex();
}

}  // namespace moonshard
