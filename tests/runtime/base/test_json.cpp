#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>

#include <fmt/format.h>

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

TEST(Json, KeepsWithinTheLimitsThatAreGiven) {
  const auto error_of = [](const std::string& text, const JsonLimits& limits) {
    try {
      parse_json(text, "test", limits);
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const JsonLimits limits{.max_bytes = 20, .max_depth = 2, .max_string_bytes = 3, .max_keys = 2};
  EXPECT_EQ(error_of(R"({"abc": [1, "def"]})", limits), "");
  EXPECT_THAT(error_of(R"({"abcdefghijk": [1]})" + std::string(2, ' '), limits),
              HasSubstr("test: expected at most 20 bytes of JSON, got 22"));
  EXPECT_THAT(error_of(R"(["abcd"])", limits), HasSubstr("a string of 4 bytes, allowed 3"));
  EXPECT_THAT(error_of(R"({"abcd": 1})", limits), HasSubstr("a string of 4 bytes, allowed 3"));
  EXPECT_THAT(error_of("[[[]]]", limits), HasSubstr("nested deeper than 2 levels"));
  EXPECT_THAT(error_of(R"({"a":1,"b":2,"c":3})", limits), HasSubstr("more than 2 keys"));
}

TEST(Json, AFileThatIsTooLargeOrCannotBeReadIsAnErrorWithItsName) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "a.json") << "[1, 2]";
  const auto error_of = [](const std::filesystem::path& path, size_t max_bytes) {
    try {
      read_text_file(path, max_bytes);
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(error_of(folder.path() / "a.json", 6), "");
  EXPECT_THAT(error_of(folder.path() / "a.json", 5), HasSubstr("a.json: expected at most 5 bytes"));
  // A file to the system, of which the first page is never there.
  EXPECT_THAT(error_of("/proc/self/mem", 5), HasSubstr("/proc/self/mem: cannot read: "));
}

TEST(Json, LookUpsInWhatIsNoObjectGiveTheFallback) {
  EXPECT_EQ(number_or(Json::array({1}), "a", 7), 7);
  EXPECT_EQ(number_or(Json{{"a", "x"}}, "a", 7), 7);
  EXPECT_EQ(string_or(Json(3), "a", "none"), "none");
  EXPECT_EQ(string_or(Json{{"a", 1}}, "a", "none"), "none");
}

TEST(ForeignJson, KeepsWithinItsLimitsAndNamesTheFile) {
  const TemporaryFolder folder;
  const auto error_of = [&](const std::string& text) {
    std::ofstream(folder.path() / "config.json", std::ios::binary) << text;
    try {
      read_foreign_json(folder.path() / "config.json",
                        {.max_bytes = 40, .max_values = 4, .max_depth = 3});
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(error_of(R"({"a": {"b": [1]}})"), "");
  EXPECT_THAT(error_of(R"({"a": [1, 2, 3]})"), HasSubstr("config.json: expected at most 4 values"));
  EXPECT_THAT(error_of(R"({"a": [[[]]]})"), HasSubstr("at most 3 levels of nesting"));
  EXPECT_THAT(error_of(R"({"a": 1, "a": 2})"), HasSubstr("each key once, got 'a' twice"));
  EXPECT_EQ(error_of(R"({"a": {"a": 1}, "b": {}})"), "");
  EXPECT_THAT(error_of(std::string("{}\0{}", 5)), HasSubstr("something else at byte 2"));
  EXPECT_THAT(error_of(R"({"a": 1e999})"), HasSubstr("something else at byte 0"));
  EXPECT_THAT(error_of("[1]"), HasSubstr("expected a JSON object, got a JSON array"));
  EXPECT_THAT(error_of(std::string(41, ' ')), HasSubstr("expected at most 40 bytes, got 41"));
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

  // A change of the first panel, and what is said of it.
  const std::pair<const char*, const char*> changes[] = {
      {R"({"kind": "heat_map", "x": {}, "series": []})", "expected x categories for a heat_map"},
      {R"({"horizontal": 1})", "expected true or false for horizontal, got 1"},
      {R"({"y": {"min": 2, "max": 2}})", "expected min below max of axis y, got 2 and 2"},
      {R"({"y": {"min": "low"}})", "expected a number for min, got \"low\""},
      {R"({"bands": [{"from": 2, "to": 1}]})", "a band's from not above its to, got 2 and 1"},
      {R"({"bands": [{"from": 2}]})", "expected a number for to, got nothing"},
      {R"({"bands": [{"from": 2, "to": null}]})", "expected a number for to, got nothing"},
      {R"({"bands": [7]})", "expected a band object, got 7"},
      {R"({"references": [{"x": [1], "y": [1]}]})", "a reference with one x, one y, or as many"},
      {R"({"references": [{"x": [1, 2], "y": [1]}]})", "got 2 and 1"},
      {R"({"references": [{"x": ["a"]}]})", "expected a number in x of a reference, got \"a\""},
      {R"({"series": [{"x": [-1], "y": [1]}]})", "expected x below 2 (the categories), got -1"},
      {R"({"series": [{"x": [null], "y": [1]}]})", "expected a number in x, got null"},
      {R"({"x": {}, "series": [{"x": [null], "y": [1]}]})", "expected an x beside every y"},
      {R"({"series": [{"x": [0], "y": [true]}]})", "expected a number or null in y, got true"},
      {R"({"series": [{"x": [0], "y": [[]]}]})", "expected a number or null in y, got array"},
      {R"({"series": [{"x": [0], "y": [1], "texts": ["a", "b"]}]})", "expected 1 values in texts"},
      {R"({"kind": "stacked_area", "x": {}, "series": [{"x": [0], "y": [1]},
           {"name": "b", "x": [1], "y": [1]}]})",
       "the same x values in all series of a stacked_area, got others in series 'b'"},
      {R"({"kind": "stacked_area", "x": {}, "series": [{"x": [1, 0], "y": [1, 1]}]})",
       "x values of a stacked_area in rising order, got 0 after 1"}};
  for (const auto& [change, expected] : changes) {
    const Json update = parse_json(change, "change");
    EXPECT_THAT(problem([&](Json& j) { j["panels"][0].update(update); }), HasSubstr(expected));
  }
  EXPECT_THAT(problem([](Json& j) { j["panels"] = std::vector<Json>(17, j["panels"][0]); }),
              HasSubstr("expected at most 16 panels, got 17"));
}

TEST(PlotSpec, KeepsEveryFieldThatItKnows) {
  const Json full = parse_json(
      R"({"schema_version": 1, "title": "t", "note": "n", "width": 640, "height": 480, "columns": 2,
      "panels": [{"kind": "bars", "title": "", "x": {"label": "", "unit": "", "scale": "linear",
      "categories": ["a", "b"]}, "y": {"label": "time", "unit": "ms", "scale": "log", "min": 1.0, "max": 10.0},
      "horizontal": true, "series": [{"name": "s", "x": [0.0, 1.0], "y": [1.5, null], "stack": "k",
      "color": 3, "labels": ["p", "q"], "status": ["ok", "oom"], "texts": ["u", "v"],
      "low": [1.0, null], "high": [2.0, 3.0]}], "bands": [{"from": 0.0, "to": 1.0, "label": "w"}],
      "references": [{"text": "peak", "x": [], "y": [8.0], "series": "s"}]},
      {"kind": "scatter", "title": "", "x": {"label": "", "unit": "", "scale": "linear"},
      "y": {"label": "", "unit": "", "scale": "linear"}, "series": [{"name": "", "x": [1.0, null], "y": [2.0, null]}]}]})",
      "test");
  EXPECT_EQ(to_json(plot_spec_from_json(full, "test")), full);
}

TEST(PlotSpec, BadUtf8InAWrongPlaceIsShownAsReplacement) {
  Json spec = parse_json(R"({"schema_version": 1, "panels": [{"kind": "lines", "series":
                             [{"x": [0], "y": [0]}]}]})",
                         "test");
  spec["panels"][0]["series"][0]["y"][0] = "\xff";
  EXPECT_THROW(plot_spec_from_json(spec, "test"), IoError);
}

TEST(PlotSpec, AFigureTooLargeForADoubleIsNone) {
  Json spec = parse_json(R"({"schema_version": 1, "panels": [{"kind": "lines", "series":
                             [{"x": [0], "y": [0]}]}]})",
                         "test");
  spec["panels"][0]["series"][0]["y"][0] = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(plot_spec_from_json(spec, "test").panels[0].series[0].y[0].has_value());
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
