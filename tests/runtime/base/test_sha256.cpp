// SHA-256 by the published vectors (FIPS 180-4's examples, RFC 4231 for HMAC), in both ways of
// computing it, and cut into pieces anywhere.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

#include "runtime/base/sha256.h"

namespace moonshard {
namespace {

std::string sha256_of(const std::string& text, Sha256::Way way) {
  Sha256 hash(way);
  hash.add(text);
  return hash.hex();
}

class Sha256Ways : public testing::TestWithParam<Sha256::Way> {};

TEST_P(Sha256Ways, GivesThePublishedDigests) {
  EXPECT_EQ(sha256_of("", GetParam()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc", GetParam()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", GetParam()),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklm"
                      "nopqklmnopqrlmnopqrsmnopqrstnopqrstu",
                      GetParam()),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha256_of(std::string(1'000'000, 'a'), GetParam()),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_P(Sha256Ways, GivesTheSameWhereverTheTextIsCut) {
  std::string text;
  std::mt19937 random(3);
  while (text.size() < 300) text += static_cast<char>(random() % 256);
  for (size_t length = 0; length <= text.size(); length += 1 + length / 40) {
    const std::string want = sha256_of(text.substr(0, length), Sha256::Way::Portable);
    for (size_t cut = 0; cut <= length; ++cut) {
      Sha256 hash(GetParam());
      hash.add(text.data(), cut);
      hash.digest();  // looking in between changes nothing
      hash.add(text.data() + cut, length - cut);
      ASSERT_EQ(hash.hex(), want) << cut << " of " << length;
      ASSERT_EQ(hash.bytes(), static_cast<int64_t>(length));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Both, Sha256Ways,
                         testing::Values(Sha256::Way::Fastest, Sha256::Way::Portable),
                         [](const auto& way) {
                           return way.param == Sha256::Way::Portable ? "Portable" : "Fastest";
                         });

TEST(HmacSha256, GivesThePublishedCodes) {
  EXPECT_EQ(hmac_sha256(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac_sha256("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd')),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(hmac_sha256(std::string(131, '\xaa'),
                        "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

}  // namespace
}  // namespace moonshard
