#include "runtime/base/checksum.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__aarch64__) && (!defined(__clang__) || defined(__ARM_FEATURE_CRC32))
#define MS_CRC32C_ARM 1
#include <arm_acle.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#define MS_CRC32C_X86 1
#include <immintrin.h>
#endif

namespace moonshard {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

constexpr uint32_t kPolynomial = 0x82f63b78;  // bits reversed: the lowest is the highest power

using ByteTable = std::array<uint32_t, 256>;

// Row k: what a byte does to the register when k more bytes have followed it.
constexpr std::array<ByteTable, 8> make_slices() {
  std::array<ByteTable, 8> slices{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit)
      value = (value & 1) != 0 ? value >> 1 ^ kPolynomial : value >> 1;
    slices[0][byte] = value;
  }
  for (size_t k = 1; k < slices.size(); ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      slices[k][byte] = slices[k - 1][byte] >> 8 ^ slices[0][slices[k - 1][byte] & 0xff];
  return slices;
}

constexpr std::array<ByteTable, 8> kSlices = make_slices();

uint64_t word_at(const std::byte* data) {
  uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  return word;
}

uint32_t update_portable(uint32_t value, const std::byte* data, size_t bytes) {
  for (; bytes >= 8; data += 8, bytes -= 8) {
    const uint64_t word = word_at(data) ^ value;
    value = 0;
    for (size_t i = 0; i < 8; ++i) value ^= kSlices[7 - i][word >> (8 * i) & 0xff];
  }
  for (; bytes > 0; ++data, --bytes)
    value = value >> 8 ^ kSlices[0][(value ^ std::to_integer<uint32_t>(*data)) & 0xff];
  return value;
}

#if defined(MS_CRC32C_ARM) || defined(MS_CRC32C_X86)

// An instruction takes eight bytes and its result comes cycles later, though one can start in each:
// three lanes of kLaneBytes run side by side and are joined at their ends.
constexpr size_t kLaneBytes = 1024;

// The register after so many zeros, for each of its bytes: joining is four look-ups. The operator
// for n zeros is squared until n is reached, as a matrix over bits (column i: what bit i becomes).
constexpr std::array<ByteTable, 4> make_zeros(size_t num_bytes) {
  std::array<uint32_t, 32> columns{};
  columns[0] = kPolynomial;
  for (size_t i = 1; i < 32; ++i) columns[i] = 1u << (i - 1);  // one zero bit
  const auto apply = [](const std::array<uint32_t, 32>& matrix, uint32_t value) {
    uint32_t sum = 0;
    for (size_t i = 0; value != 0; ++i, value >>= 1)
      if ((value & 1) != 0) sum ^= matrix[i];
    return sum;
  };
  for (size_t bits = 1; bits < 8 * num_bytes; bits *= 2) {
    std::array<uint32_t, 32> squared{};
    for (size_t i = 0; i < 32; ++i) squared[i] = apply(columns, columns[i]);
    columns = squared;
  }
  std::array<ByteTable, 4> zeros{};
  for (size_t k = 0; k < 4; ++k)
    for (uint32_t byte = 0; byte < 256; ++byte) zeros[k][byte] = apply(columns, byte << (8 * k));
  return zeros;
}

static_assert(std::has_single_bit(kLaneBytes), "make_zeros squares");
constexpr std::array<ByteTable, 4> kLaneOfZeros = make_zeros(kLaneBytes);

uint32_t after_lane(uint32_t value) {
  return kLaneOfZeros[0][value & 0xff] ^ kLaneOfZeros[1][value >> 8 & 0xff] ^
         kLaneOfZeros[2][value >> 16 & 0xff] ^ kLaneOfZeros[3][value >> 24];
}

#if defined(MS_CRC32C_ARM)
#define MS_CRC32C_TARGET __attribute__((target("+crc")))
#define MS_CRC32C_WORD __crc32cd
#define MS_CRC32C_BYTE __crc32cb
bool has_instructions() {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#else
#define MS_CRC32C_TARGET __attribute__((target("sse4.2")))
#define MS_CRC32C_WORD(value, word) static_cast<uint32_t>(_mm_crc32_u64(value, word))
#define MS_CRC32C_BYTE _mm_crc32_u8
bool has_instructions() {
  return __builtin_cpu_supports("sse4.2") != 0;
}
#endif

MS_CRC32C_TARGET uint32_t update_fast(uint32_t value, const std::byte* data, size_t bytes) {
  for (; bytes >= 3 * kLaneBytes; data += 3 * kLaneBytes, bytes -= 3 * kLaneBytes) {
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < kLaneBytes; i += 8) {
      value = MS_CRC32C_WORD(value, word_at(data + i));
      second = MS_CRC32C_WORD(second, word_at(data + kLaneBytes + i));
      third = MS_CRC32C_WORD(third, word_at(data + 2 * kLaneBytes + i));
    }
    value = after_lane(after_lane(value) ^ second) ^ third;
  }
  for (; bytes >= 8; data += 8, bytes -= 8) value = MS_CRC32C_WORD(value, word_at(data));
  for (; bytes > 0; ++data, --bytes) value = MS_CRC32C_BYTE(value, std::to_integer<uint8_t>(*data));
  return value;
}

#else

bool has_instructions() {
  return false;
}
constexpr auto update_fast = update_portable;

#endif

}  // namespace

bool has_crc32c_instructions() {
  static const bool fast = has_instructions();
  return fast;
}

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t seed) {
  return ~update_portable(~seed, bytes.data(), bytes.size());
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed) {
  if (!has_crc32c_instructions()) return crc32c_portable(bytes, seed);
  return ~update_fast(~seed, bytes.data(), bytes.size());
}

}  // namespace moonshard
