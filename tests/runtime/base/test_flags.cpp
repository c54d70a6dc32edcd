#include "runtime/base/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/check.h"

namespace moonshard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Sizes {
  int64_t batch_size = 2;
  double lr = 0.5;
  bool offload = false;
  std::string mode = "plain";
};

struct Output {
  std::string file;
  std::vector<std::string> specs;
  bool json = false;
};

const OptionSchema& sizes_schema() {
  static const OptionSchema schema = [] {
    OptionSchema s("sizes");
    s.integer<Sizes>("batch_size", &Sizes::batch_size, 1, 100, "samples");
    s.real<Sizes>("lr", &Sizes::lr, 0, 1, "learning rate").aliases = {"learning_rate"};
    s.boolean<Sizes>("offload", &Sizes::offload, "to the host");
    s.choice<Sizes>("mode", &Sizes::mode, {"plain", "ghost"}, "engine");
    return s;
  }();
  return schema;
}

const OptionSchema& output_schema() {
  static const OptionSchema schema = [] {
    OptionSchema s("output");
    s.text<Output>("file", &Output::file, "where to").aliases = {"f"};
    s.texts<Output>("specs", &Output::specs, "what to draw");
    s.boolean<Output>("json", &Output::json, "as JSON");
    return s;
  }();
  return schema;
}

struct Given {
  Sizes sizes;
  Output output;
  Words free_words;
};

Given read(const Words& words) {
  Given given;
  read_flags({{output_schema(), &given.output}, {sizes_schema(), &given.sizes}}, words);
  return given;
}

std::string mistake(const Words& words) {
  try {
    read(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Flags, AreReadInEverySpelling) {
  const Given given =
      read({"--batch-size", "4", "--learning_rate=0.25", "mode=ghost", "-f", "out.json"});
  EXPECT_EQ(given.sizes.batch_size, 4);
  EXPECT_EQ(given.sizes.lr, 0.25);
  EXPECT_EQ(given.sizes.mode, "ghost");
  EXPECT_EQ(given.output.file, "out.json");
}

TEST(Flags, BooleansNeedNoValue) {
  EXPECT_TRUE(read({"--offload"}).sizes.offload);
  EXPECT_FALSE(read({"--offload", "no"}).sizes.offload);
  EXPECT_FALSE(read({"--offload=false"}).sizes.offload);
  const Given given = read({"--json", "batch_size=3", "--offload", "--lr", "1"});
  EXPECT_TRUE(given.output.json && given.sizes.offload);
  EXPECT_EQ(given.sizes.batch_size, 3);
}

TEST(Flags, AListEndsAtTheNextFlag) {
  const Given given = read({"--specs", "a", "b", "--json", "--specs", "c"});
  EXPECT_THAT(given.output.specs, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(given.output.json);
}

TEST(Flags, AValueMayLookLikeAFlagOrANegativeNumber) {
  EXPECT_EQ(read({"--file", "--odd"}).output.file, "--odd");
  EXPECT_THAT(mistake({"--lr", "-1"}), HasSubstr("expected a number from 0 to 1, got -1"));
}

TEST(Flags, FreeWordsAreCollectedWhereTheyAreAllowed) {
  Given given;
  read_flags({{output_schema(), &given.output}}, {"dir", "--json", "a=b", "--specs", "x"},
             &given.free_words);
  EXPECT_THAT(given.free_words, ElementsAre("dir", "a=b"));
  EXPECT_TRUE(given.output.json);
  EXPECT_THAT(mistake({"word"}),
              HasSubstr("command line: expected an option like --batch-size 4 or batch_size=4, got "
                        "'word'"));
}

TEST(Flags, MistakesNameTheFlagTheNearestAndAllNames) {
  EXPECT_THAT(mistake({"--batch-size"}),
              HasSubstr("option '--batch-size': expected a value (int), got the end of the line"));
  EXPECT_EQ(mistake({"--jsn"}),
            "sizes: unknown option 'jsn'; did you mean 'json'? known: file, specs, json, "
            "batch_size, lr, offload, mode");
  EXPECT_THAT(mistake({"--mode", "gohst"}), HasSubstr("did you mean 'ghost'?"));
}

TEST(Flags, LeadingFlagsEndAtTheFirstWordThatIsNone) {
  Output output;
  EXPECT_EQ(read_leading_flags({output_schema(), &output}, {"--file", "x", "script", "--json"}),
            2u);
  EXPECT_EQ(output.file, "x");
  EXPECT_FALSE(output.json);
  EXPECT_EQ(read_leading_flags({output_schema(), &output}, {"--json", "--other", "y"}), 1u);
  EXPECT_EQ(read_leading_flags({output_schema(), &output}, {}), 0u);
}

TEST(Flags, CanBeTakenOutOfALine) {
  EXPECT_THAT(without_flags({"--log-dir", "d", "--a", "1", "--nproc=2", "--log_dir=e", "nproc"},
                            {"nproc", "log_dir"}),
              ElementsAre("--a", "1", "nproc"));
}

TEST(Flags, HelpHasTypeAndDefault) {
  const Sizes sizes;
  const std::string text = describe_flags(sizes_schema(), &sizes);
  EXPECT_THAT(text, HasSubstr("  --batch-size  samples [int: 2]\n"));
  EXPECT_THAT(text, HasSubstr("  --mode        engine [plain | ghost: plain]\n"));
  const Output output;
  EXPECT_THAT(describe_flags(output_schema(), &output), HasSubstr("--file   where to [text]\n"));
}

}  // namespace
}  // namespace moonshard
