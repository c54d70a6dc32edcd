// Units, numbers and the cleaning of text that others wrote.
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

#include <gtest/gtest.h>

#include "viewer/widgets/colors.h"

namespace moonshard::viewer {
namespace {

TEST(Format, NumbersKeepFourSignificantDigits) {
  EXPECT_EQ(format_number(12.3456), "12.35");
  EXPECT_EQ(format_number(0.69314), "0.6931");
  EXPECT_EQ(format_number(1234.5), "1234");
  EXPECT_EQ(format_number(64), "64");
  EXPECT_EQ(format_number(-3.25), "-3.250");
  EXPECT_EQ(format_number(1.5e-7), "1.5e-07");
}

TEST(Format, TicksAreShort) {
  EXPECT_EQ(format_tick(0), "0");
  EXPECT_EQ(format_tick(0.25), "0.25");
  EXPECT_EQ(format_tick(2048), "2048");
  EXPECT_EQ(format_tick(1e7), "1e7");
  EXPECT_EQ(format_tick(2e-6), "2e-6");
}

TEST(Format, BytesGrowThroughTheirUnits) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1.5 * (1 << 20)), "1.500 MiB");
  EXPECT_EQ(format_bytes(23.0 * (1 << 30)), "23 GiB");
}

TEST(Format, MetricKeysGiveTitleUnitAndFactor) {
  const MetricFormat bytes = metric_format("peak_memory_bytes");
  EXPECT_EQ(with_unit(bytes.title, bytes.unit), "peak memory [MiB]");
  EXPECT_DOUBLE_EQ(bytes.factor * (3 << 20), 3.0);
  EXPECT_EQ(with_unit(metric_format("avg_time_ms").title, metric_format("avg_time_ms").unit),
            "avg time [ms]");
  EXPECT_EQ(metric_format("final_loss").unit, "");
  EXPECT_EQ(metric_format("_ms").title, " ms");  // nothing before the suffix: not a unit
}

TEST(Format, CommonDecimalsDropNeedlessZeros) {
  EXPECT_EQ(common_decimals({43.1, 21.7, -3.2}), 1);
  EXPECT_EQ(common_decimals({100, 250}), 0);
  EXPECT_EQ(common_decimals({12.5, 220}), 1);
  EXPECT_LT(common_decimals({0.001, 5000}), 0);
  EXPECT_EQ(common_decimals({0, 0}), 0);
}

TEST(Format, ControlCharactersNeverReachTheScreen) {
  EXPECT_EQ(clean_text("a\x01\x02\nb\x7f"), "a   b ");
  EXPECT_EQ(clean_text("\x1b[31mred\x1b[0m"), "red");
  EXPECT_EQ(clean_text("x\u202ey"), "x y");
  EXPECT_EQ(clean_lines("a\r\nb\tc"), "a\nb    c");
}

TEST(Format, BrokenUtf8BecomesQuestionMarks) {
  EXPECT_EQ(clean_text("a\xff\xc3"), "a??");
  EXPECT_EQ(clean_text("gr\u00fcn"), "gr\u00fcn");
}

TEST(Format, LongTextIsCut) {
  EXPECT_EQ(clean_text(std::string(100, 'x'), 10), std::string(10, 'x') + "...");
}

TEST(Format, LabelsShowDoubleHashesLiterally) {
  const std::string label = literal_label("a##b", "id");
  EXPECT_EQ(label.find("##"), label.size() - 4);
  EXPECT_NE(literal_label("a#", "id").find("a#\u200b##id"), std::string::npos);
}

TEST(Format, OptionsKeepAllTheirDigits) {
  RunData run;
  run.texts = {"ghost"};
  EXPECT_EQ(value_text(run, {Value::Kind::Number, 0, 0.8}), "0.8");
  EXPECT_EQ(value_text(run, {Value::Kind::Number, 0, 7504936960.0}), "7504936960");
  EXPECT_EQ(value_text(run, {Value::Kind::Text, 0, 0}), "ghost");
  EXPECT_EQ(value_text(run, {Value::Kind::Bool, 0, 1}), "yes");
  EXPECT_EQ(value_text(run, {}), "");
}

TEST(Colors, TheFirstSeriesAllDiffer) {
  for (const Theme theme : {Theme::Light, Theme::Dark}) {
    for (size_t i = 0; i < kNumSeriesColors; ++i) {
      for (size_t j = 0; j < i; ++j) EXPECT_NE(series_color(i, theme), series_color(j, theme));
    }
  }
}

TEST(Colors, GoodAndBadStatusDiffer) {
  EXPECT_NE(status_color("ok", Theme::Dark), status_color("failed", Theme::Dark));
  EXPECT_NE(status_color("oom", Theme::Dark), status_color("failed", Theme::Dark));
}

TEST(Format, AFileIsNamedByWhatTellsItFromTheOthers) {
  const std::vector<std::string> traces = {"trace.rank0.json.gz", "trace.rank1.json.gz"};
  EXPECT_EQ(telling_part(traces[1], traces), "rank1");
  EXPECT_EQ(telling_part("snapshot.pickle", {"snapshot.pickle"}), "snapshot.pickle");
  EXPECT_EQ(telling_part("a", {"a", "ab"}), "a");
  EXPECT_EQ(telling_part("x.pickle", {"x.pickle", "x.oom.pickle"}), "x.pickle")
      << "nothing would be left of it";
}

}  // namespace
}  // namespace moonshard::viewer
