// Tables for the clipboard.
#include "viewer/data/table_text.h"

#include <gtest/gtest.h>

namespace moonshard::viewer {
namespace {

TEST(TableText, AlignsTextToTheLeftAndNumbersToTheRight) {
  EXPECT_EQ(table_text({"mode", "time [ms]"}, {{"none", "8.5"}, {"flash_bookkeeping", "1234"}}),
            "mode               time [ms]\n"
            "-----------------  ---------\n"
            "none                     8.5\n"
            "flash_bookkeeping       1234\n");
}

TEST(TableText, AColumnWithAnyWordInItIsText) {
  EXPECT_EQ(table_text({"a", "b"}, {{"1", "x"}, {"oom", "2.00x"}}),
            "a    b\n"
            "---  -----\n"
            "1    x\n"
            "oom  2.00x\n");
}

TEST(TableText, EmptyCellsTakeTheColumnsSideAndLinesEndWithoutSpaces) {
  EXPECT_EQ(table_text({"n", "word"}, {{"-1.5e-05", ""}, {"", "z"}, {}}),
            "       n  word\n"
            "--------  ----\n"
            "-1.5e-05\n"
            "          z\n"
            "\n");
}

TEST(TableText, CountsCharactersNotBytesAndKeepsEachRowOnItsLine) {
  EXPECT_EQ(table_text({"µ"}, {{"größer"}, {"a\r\nb\tc\x01"}}),
            "µ\n"
            "------\n"
            "größer\n"
            "a b c\n");
}

TEST(TableText, CellsBeyondTheTitlesAreLeftOut) {
  EXPECT_EQ(table_text({"a"}, {{"1", "2"}}), "a\n-\n1\n");
  EXPECT_EQ(table_text({}, {}), "\n\n");
}

TEST(TableMarkdown, EscapesBarsAndLineEnds) {
  EXPECT_EQ(table_markdown({"name", "MiB"}, {{"a|b\nc", "12"}, {"x\\", "3"}}),
            "| name   | MiB |\n"
            "| ------ | --: |\n"
            "| a\\|b c |  12 |\n"
            "| x\\\\    |   3 |\n");
}

TEST(TableMarkdown, HasRulesOfAtLeastThreeDashes) {
  EXPECT_EQ(table_markdown({"a", "b"}, {{"x", "1"}}),
            "| a | b |\n"
            "| --- | --: |\n"
            "| x | 1 |\n");
}

}  // namespace
}  // namespace moonshard::viewer
