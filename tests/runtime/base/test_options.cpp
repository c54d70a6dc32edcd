#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/options.h"

namespace moonshard {
namespace {

using ::testing::HasSubstr;

struct Sample {
  int64_t count = 3;
  double rate = 0.5;
  bool flag = false;
  std::string name = "none";
  std::string free_text = "";
};

OptionSchema sample_schema() {
  OptionSchema s("sample");
  s.integer<Sample>("count", &Sample::count, 1, 100, "how many").aliases = {"num"};
  s.real<Sample>("rate", &Sample::rate, 0, 1, "how fast");
  s.boolean<Sample>("flag", &Sample::flag, "whether");
  s.choice<Sample>("name", &Sample::name, {"none", "all"}, "which").value_aliases = {
      {"nothing", "none"}};
  s.text<Sample>("free_text", &Sample::free_text, "words");
  return s;
}

std::string error_of(const std::string& name, const Json& value) {
  Sample sample;
  try {
    sample_schema().assign(&sample, name, value);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Options, AreStoredByNameAliasAndEitherDash) {
  Sample sample;
  const OptionSchema schema = sample_schema();
  schema.assign(&sample, "num", 7);
  schema.assign(&sample, "free-text", "x");
  schema.assign(&sample, "name", "nothing");
  schema.assign(&sample, "rate", 1);
  EXPECT_EQ(sample.count, 7);
  EXPECT_EQ(sample.free_text, "x");
  EXPECT_EQ(sample.name, "none");
  EXPECT_EQ(sample.rate, 1.0);
}

TEST(Options, AnUnknownNameIsAnErrorWithTheNearestAndAllKnown) {
  EXPECT_EQ(error_of("cuont", 1),
            "sample: unknown option 'cuont'; did you mean 'count'? known: count, rate, flag, name, "
            "free_text");
  EXPECT_THAT(error_of("zzzzzzzzzzzz", 1), HasSubstr("known: count"));
}

TEST(Options, AWrongTypeSaysWhatWasExpectedAndWhatCame) {
  EXPECT_THAT(error_of("count", "three"),
              HasSubstr("option 'count': expected an integer, got 'three'"));
  EXPECT_THAT(error_of("count", 2.5),
              HasSubstr("expected an integer that a double holds exactly, got 2.5"));
  EXPECT_THAT(error_of("rate", true), HasSubstr("expected a finite number, got true"));
  EXPECT_THAT(error_of("flag", 1), HasSubstr("expected true or false, got 1"));
  EXPECT_THAT(error_of("free_text", 1), HasSubstr("expected a text, got 1"));
}

TEST(Options, AValueOutOfRangeNamesTheRange) {
  EXPECT_THAT(error_of("count", 0), HasSubstr("expected an integer from 1 to 100, got 0"));
  EXPECT_THAT(error_of("rate", 1.5), HasSubstr("expected a number from 0 to 1, got 1.5"));
  EXPECT_THAT(error_of("rate", std::nan("")), HasSubstr("expected a finite number"));
}

TEST(Options, AWordThatIsNotAmongTheChoicesNamesTheNearest) {
  EXPECT_EQ(error_of("name", "al"),
            "sample: option 'name': expected one of none, all, got 'al'; did you mean 'all'?");
}

TEST(Options, TextIsReadByTheOptionsType) {
  Sample sample;
  const OptionSchema schema = sample_schema();
  schema.assign_text(&sample, "count", "12");
  schema.assign_text(&sample, "rate", "1e-3");
  schema.assign_text(&sample, "flag", "on");
  schema.assign_text(&sample, "free_text", "12");
  EXPECT_EQ(sample.count, 12);
  EXPECT_EQ(sample.rate, 1e-3);
  EXPECT_TRUE(sample.flag);
  EXPECT_EQ(sample.free_text, "12");
  EXPECT_THROW(schema.assign_text(&sample, "count", "12x"), UsageError);
  EXPECT_THROW(schema.assign_text(&sample, "count", ""), UsageError);
}

TEST(Options, LargeIntegersKeepTheirDigits) {
  struct Wide {
    int64_t value = 0;
  };
  OptionSchema schema("wide");
  schema.integer<Wide>("value", &Wide::value, -1e18, 1e18, "any");
  Wide wide;
  schema.assign(&wide, "value", int64_t{9007199254740993});
  EXPECT_EQ(wide.value, 9007199254740993);
  schema.assign_text(&wide, "value", "9007199254740993");
  EXPECT_EQ(wide.value, 9007199254740993);
}

TEST(Options, ToJsonAndBackIsTheSame) {
  Sample sample;
  sample.count = 42;
  const OptionSchema schema = sample_schema();
  Sample copy;
  schema.assign_all(&copy, schema.to_json(&sample));
  EXPECT_EQ(schema.to_json(&copy), schema.to_json(&sample));
  EXPECT_THROW(schema.assign_all(&copy, Json::array({1})), UsageError);
}

TEST(NearestName, CountsASwapAsOneStep) {
  EXPECT_EQ(nearest_name("modle", {"model", "mode"}), "model");
  EXPECT_EQ(nearest_name("xyz", {"model"}), "");
}

}  // namespace
}  // namespace moonshard
