#include <gtest/gtest.h>

#include <set>

#include "runtime/base/utf8.h"

namespace moonshard {
namespace {

TEST(Utf8, WhiteSpaceIsUnicodes) {
  const std::set<uint32_t> expected = {0x09,   0x0A,   0x0B,   0x0C,   0x0D,   0x20,   0x85,
                                       0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                       0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                       0x2029, 0x202F, 0x205F, 0x3000};
  for (uint32_t code = 0; code <= 0x10FFFF; ++code)
    ASSERT_EQ(is_white_space(code), expected.contains(code)) << std::hex << code;
}

TEST(Utf8, QuotesShowWhatCannotBeSeen) {
  EXPECT_EQ(in_quotes("a\tb\x7f\u0085\u00e9"), "'a\\x09b\\x7f\\x85\u00e9'");
  EXPECT_EQ(in_quotes("\xff\xc3"), "'\\xff\\xc3'");
  EXPECT_EQ(in_quotes(std::string(101, 'x')), "'" + std::string(100, 'x') + "\u2026'");
  EXPECT_EQ(in_quotes(std::string(99, 'x') + "\u65e5"), "'" + std::string(99, 'x') + "\u65e5'");
}

TEST(Utf8, CharactersAreReadBackAndIllFormedBytesAreNot) {
  for (const uint32_t code : {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    append_character(text, code);
    const Utf8Character character = read_character(text, 0);
    EXPECT_TRUE(character.valid);
    EXPECT_EQ(character.code, code);
    EXPECT_EQ(static_cast<size_t>(character.length), text.size());
    EXPECT_EQ(first_invalid_utf8(text + text), std::nullopt);
  }
  for (const char* bad : {"\x80", "\xc1\x81", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                          "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x28\xa1", "\xc3"})
    EXPECT_EQ(first_invalid_utf8(std::string("12345678a") + bad), 9u);
}

}  // namespace
}  // namespace moonshard
