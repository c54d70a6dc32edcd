// Patterns that cut text into words: read as their tokenizer's own engine reads them, or refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/data/text/split_pattern.h"

namespace moonshard::data {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(SplitPattern, RefusesWhatOtherEnginesReadDifferently) {
  for (const char* pattern : {"\\h+",
                              "[a&&b]",
                              "[[a]b]",
                              "(?m:a)",
                              "\\p{N}{1,3}+",
                              "^a",
                              "a$",
                              "\\Ka",
                              "\\G",
                              "[\\S]",
                              "\\1",
                              "\\pL",
                              "(?<n>a)",
                              "a\\",
                              "[]a]",
                              "\\R",
                              "\\X",
                              "\\p",
                              "\\p{L",
                              "\\x",
                              "\\x41",
                              "(*ACCEPT)a",
                              "(*LIMIT_MATCH=1)a",
                              "a{,3}",
                              "a{2}?b"}) {
    EXPECT_THROW(SplitPattern(pattern, "t"), IoError) << pattern;
  }
  for (const char* pattern : {"", "(", "a{2,1}", "[z-a]", "\\p{Nonsense}", "*", "\xff"}) {
    EXPECT_THROW(SplitPattern(pattern, "t"), IoError) << pattern;
  }
  EXPECT_THROW(SplitPattern(std::string(100'000, 'a'), "t"), IoError);
  for (const char* pattern : {"a{1,2}?", "a{2}b?", "\\p{L}?", "[(*{,]"})
    EXPECT_NO_THROW(SplitPattern(pattern, "t")) << pattern;
  EXPECT_THAT([] { SplitPattern("a|\\h", "file: field 'x'"); },
              ThrowsMessage<IoError>(HasSubstr("file: field 'x': expected a pattern of")));
}

TEST(SplitPattern, SpellsOutWhatPcreReadsDifferently) {
  const auto own = [](const char* pattern) { return translated_pattern(pattern, "t"); };
  EXPECT_EQ(own("\\v"), "\\x0b");
  EXPECT_EQ(own("\\\u00e9"), "\u00e9");
  EXPECT_EQ(own("\\W[\\w]"), "[^\\p{L}\\p{M}\\p{N}\\p{Pc}][\\p{L}\\p{M}\\p{N}\\p{Pc}]");
  EXPECT_EQ(own("\\D\\d"), "[^\\p{Nd}][\\p{Nd}]");
  for (const char* same : {"\\P{L}", "\\x{41}", "a]", "\\{\\[\\_\\.", "(?>a|b)c", "}"})
    EXPECT_EQ(own(same), same);
}

TEST(SplitPattern, AnEmptyMatchBehindTheTextCutsNothing) {
  const SplitPattern pattern("(?![ab])", "t");
  std::vector<std::string_view> pieces;
  pattern.split("abab", pieces);
  EXPECT_THAT(pieces, testing::ElementsAre("abab"));
}

TEST(SplitPattern, ALongTextCanBeInterrupted) {
  const SplitPattern pattern("a", "t");
  std::vector<std::string_view> pieces;
  pattern.split(std::string(5000, 'a'), pieces);
  EXPECT_EQ(pieces.size(), 5000u);
  request_interrupt();
  EXPECT_THROW(pattern.split(std::string(5000, 'a'), pieces), Interrupted);
  clear_interrupt();
}

TEST(SplitPattern, EndsAHostilePatternWithAnError) {
  const SplitPattern pattern("(a+)+(?=b)", "t");
  std::vector<std::string_view> pieces;
  EXPECT_THAT([&] { pattern.split(std::string(64, 'a') + "c", pieces); },
              ThrowsMessage<IoError>(HasSubstr("steps")));
}

TEST(SplitPattern, KeepsWhatLiesBetweenMatches) {
  const SplitPattern pattern("b+|x*", "t");  // x* also matches nothing, which cuts nothing
  std::vector<std::string_view> pieces;
  pattern.split("aabbc\u00e9bx", pieces);
  EXPECT_THAT(pieces, testing::ElementsAre("aa", "bb", "c\u00e9", "b", "x"));
}

}  // namespace
}  // namespace moonshard::data
