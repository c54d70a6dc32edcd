// CRC32C by the vectors of RFC 3720 (B.4), in both ways of computing it, and cut into pieces
// anywhere.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/checksum.h"

namespace moonshard {
namespace {

using Way = uint32_t (*)(std::span<const std::byte>, uint32_t);

class Crc32cWays : public testing::TestWithParam<Way> {
 protected:
  static uint32_t of(const std::vector<uint8_t>& bytes) {
    return GetParam()(std::as_bytes(std::span(bytes)), 0);
  }
};

TEST_P(Crc32cWays, GivesThePublishedChecksums) {
  std::vector<uint8_t> rising(32), falling(32);
  for (uint8_t i = 0; i < 32; ++i) rising[i] = i, falling[i] = static_cast<uint8_t>(31 - i);
  EXPECT_EQ(of(std::vector<uint8_t>(32, 0x00)), 0x8a9136aau);
  EXPECT_EQ(of(std::vector<uint8_t>(32, 0xff)), 0x62a8ab43u);
  EXPECT_EQ(of(rising), 0x46dd794eu);
  EXPECT_EQ(of(falling), 0x113fdb5cu);
  EXPECT_EQ(of({'1', '2', '3', '4', '5', '6', '7', '8', '9'}), 0xe3069283u);
  EXPECT_EQ(of({}), 0u);
}

// Bit by bit, as the polynomial is divided on paper.
TEST_P(Crc32cWays, EqualsTheDivisionByThePolynomialForAnyLengthAndPieces) {
  std::mt19937 random(5);
  for (const size_t length : {1u, 7u, 8u, 1023u, 3071u, 3072u, 3073u, 9216u, 20000u}) {
    std::vector<uint8_t> bytes(length);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    uint32_t divided = ~0u;
    for (const uint8_t byte : bytes) {
      divided ^= byte;
      for (int bit = 0; bit < 8; ++bit)
        divided = divided >> 1 ^ ((divided & 1) != 0 ? 0x82f63b78u : 0);
    }
    const auto all = std::as_bytes(std::span(bytes));
    EXPECT_EQ(GetParam()(all, 0), ~divided) << length;
    const size_t cut = random() % (length + 1);
    EXPECT_EQ(GetParam()(all.subspan(cut), GetParam()(all.first(cut), 0)), ~divided) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Crc32cWays, testing::Values(&crc32c, &crc32c_portable));

}  // namespace
}  // namespace moonshard
