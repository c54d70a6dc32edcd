#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>

#include "runtime/analysis/rows.h"
#include "runtime/base/json.h"
#include "runtime/records/csv.h"
#include "runtime/records/plot_spec.h"
#include "tests/support/temporary_folder.h"

namespace moonshard::records {
namespace {

using ::testing::HasSubstr;

std::string parse_error(const std::string& text) {
  try {
    parse_json(text, "test");
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

TEST(Json, RefusesDeepNestingWithoutBuildingIt) {
  EXPECT_THAT(parse_error(std::string(100'000, '[')), HasSubstr("nested deeper than 256 levels"));
  EXPECT_EQ(parse_error(std::string(256, '[') + std::string(256, ']')), "");
}

TEST(Json, RefusesDuplicateKeysAndNumbersThatDoNotFit) {
  EXPECT_THAT(parse_error(R"({"a": 1, "a": 2})"), HasSubstr("duplicate key 'a'"));
  EXPECT_THAT(parse_error("[1e400]"), HasSubstr("number overflow parsing '1e400'"));
  EXPECT_NE(parse_error("[NaN]"), "");
  EXPECT_NE(parse_error(R"(["\ud800"])"), "");
  EXPECT_NE(parse_error("{\"a\": 1"), "");
  EXPECT_NE(parse_error(""), "");
}

TEST(Json, NamesTheFileAndTheReason) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "bad.json") << "{\"a\": ";
  try {
    read_json_file(folder.path() / "bad.json");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bad.json"));
    EXPECT_THAT(error.what(), HasSubstr("malformed at byte"));
  }
}

TEST(Json, RefusesWhatIsNotAPlainFileWithoutBlocking) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_json_file(folder.path()), IoError);
  EXPECT_THROW(read_json_file(folder.path() / "absent.json"), IoError);
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(read_json_file(folder.path() / "pipe"), IoError);
}

TEST(Json, WritesBadUtf8AsReplacementInsteadOfThrowing) {
  EXPECT_THAT(to_text(Json{{"log", "\xff\xfe"}}), HasSubstr("\xEF\xBF\xBD"));
}

TEST(Csv, RoundTripsQuotesAndDropsATornLastLine) {
  const CsvTable table{{"a", "b"}, {{"1", "x,y"}, {"2", "say \"hi\"\nthere"}}};
  const CsvTable back = parse_csv(to_csv(table), "test");
  EXPECT_EQ(back.columns, table.columns);
  EXPECT_EQ(back.rows, table.rows);
  EXPECT_EQ(parse_csv("a,b\n1,2\n3,", "test").rows.size(), 1u);
}

TEST(Statistics, AreTheTextbookOnes) {
  const Statistics summary = analysis::summarize({4, 1, 3, 2});
  EXPECT_EQ(summary.count, 4);
  EXPECT_DOUBLE_EQ(summary.mean, 2.5);
  EXPECT_DOUBLE_EQ(summary.median, 2.5);
  EXPECT_DOUBLE_EQ(summary.min, 1);
  EXPECT_DOUBLE_EQ(summary.max, 4);
  EXPECT_DOUBLE_EQ(summary.iqr, 1.5);  // 3.25 - 1.75
  EXPECT_DOUBLE_EQ(summary.p95, 3.85);
  EXPECT_EQ(analysis::summarize({}).count, 0);
}

TEST(PlotSpec, RoundTripsAndNamesWhatIsWrong) {
  const Json good = parse_json(
      R"({"schema_version": 1, "title": "t", "width": 800, "height": 400, "panels": [{"kind": "bars",
      "title": "", "x": {"label": "T", "categories": ["64", "128"]}, "y": {"label": "time", "unit": "ms"},
      "series": [{"name": "none", "x": [0, 1], "y": [1.5, null], "status": ["ok", "oom"]}]}]})",
      "test");
  const PlotSpec spec = plot_spec_from_json(good, "test");
  EXPECT_FALSE(spec.panels[0].series[0].y[1].has_value());
  EXPECT_EQ(to_json(plot_spec_from_json(to_json(spec), "test")), to_json(spec));

  const auto problem = [&good](const std::function<void(Json&)>& damage) {
    Json bad = good;
    damage(bad);
    try {
      plot_spec_from_json(bad, "test");
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(
      problem([](Json& j) { j["panels"][0]["kind"] = "pie"; }),
      HasSubstr(
          "expected kind bars, stacked_bars, lines, stacked_area, scatter or heat_map, got 'pie'"));
  EXPECT_THAT(problem([](Json& j) {
                j["panels"][0]["series"][0]["x"] = {0, 2};
              }),
              HasSubstr("expected x below 2"));
  EXPECT_THAT(problem([](Json& j) { j["panels"][0]["series"][0]["x"] = Json::array({0}); }),
              HasSubstr("expected 2 values in x"));
  EXPECT_THAT(problem([](Json& j) { j["schema_version"] = 99; }), HasSubstr("schema_version"));
  EXPECT_THAT(problem([](Json& j) { j["panels"] = Json::array(); }),
              HasSubstr("at least one panel"));
}

TEST(Json, AZeroByteDoesNotEndTheText) {
  EXPECT_THROW(parse_json(std::string_view("{}\0junk", 7), "here"), IoError);
  EXPECT_THROW(parse_json(std::string_view("{}\0", 3), "here"), IoError);
}

TEST(Json, AnObjectOfTooManyKeysIsRefusedBeforeItIsBuilt) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) text += fmt::format("{}\"k{}\":0", i == 0 ? "" : ",", i);
  text += "}";
  EXPECT_THROW(parse_json(text, "here"), IoError);
}

}  // namespace
}  // namespace moonshard::records
