// Plot specs as JSON: what goes out comes back, and what cannot be drawn is refused by name.
#include "runtime/records/plot_spec.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/viewer/render/plot_kinds.h"

namespace moonshard::viewer {
namespace {
using records::plot_spec_from_json;

std::string refusal(const std::string& panel) {
  const std::string text = R"({"schema_version": 1, "panels": [)" + panel + "]}";
  try {
    plot_spec_from_json(parse_json(text, "x"), "x.plot.json");
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

TEST(PlotSpec, EveryKindSurvivesTheWayThroughJson) {
  for (const NamedSpec& kind : all_kinds()) {
    const Json first = to_json(kind.spec);
    const Json read = parse_json(to_text(first), kind.name);
    EXPECT_EQ(to_json(plot_spec_from_json(read, kind.name)), first) << kind.name;
  }
}

TEST(PlotSpec, KeepsWhatTheNewKindsNeed) {
  const auto again = [](const records::PlotSpec& spec) {
    return plot_spec_from_json(parse_json(to_text(to_json(spec)), "x"), "x");
  };
  const records::PlotSpec stacks = again(kind_spec(stack_panel()));
  EXPECT_EQ(stacks.panels[0].series[2].stack, "flash");
  const records::PlotSpec area = again(kind_spec(area_panel()));
  ASSERT_EQ(area.panels[0].bands.size(), 3u);
  EXPECT_EQ(area.panels[0].bands[1].label, "backward");
  const records::PlotSpec fit = again(kind_spec(fit_panel()));
  EXPECT_EQ(fit.panels[0].references[0].text, "T^1.02");
  const records::PlotSpec scatter = again(kind_spec(scatter_panel()));
  EXPECT_TRUE(std::isnan(scatter.panels[0].series[1].x[1]));
  EXPECT_EQ(scatter.panels[0].series[0].texts[1], "2048");
  const records::PlotSpec heat = again(kind_spec(heat_panel()));
  EXPECT_EQ(heat.panels[0].value.max, 100.0);
  EXPECT_TRUE(again(kind_spec(lying_panel())).panels[0].horizontal);
  EXPECT_EQ(again(all_kinds().back().spec).columns, 2);
  EXPECT_EQ(again(all_kinds().back().spec).note, "A note below the picture.");
}

TEST(PlotSpec, RefusesWhatCannotBeDrawn) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"kind": "pie"})",
       "expected kind bars, stacked_bars, lines, stacked_area, scatter or heat_map"},
      {R"({"kind": "heat_map", "series": []})", "x categories for a heat_map"},
      {R"({"kind": "stacked_area", "series": [{"x": [0, 1], "y": [1, 1]}, {"name": "b", "x": [0, 2], "y": [1, 1]}]})",
       "the same x values in all series of a stacked_area, got others in series 'b'"},
      {R"({"kind": "stacked_area", "series": [{"x": [1, 0], "y": [1, 1]}]})", "in rising order"},
      {R"({"kind": "bars", "series": [{"x": [0], "y": [1], "low": [1, 2]}]})",
       "1 values in low of series ''"},
      {R"({"kind": "bars", "series": [{"x": [0], "y": [1], "texts": [3]}]})",
       "a string in texts, got 3"},
      {R"({"kind": "lines", "series": [{"x": [null], "y": [1]}]})", "an x beside every y"},
      {R"({"kind": "bars", "x": {"categories": ["a"]}, "series": [{"x": [null], "y": [null]}]})",
       "a number in x"},
      {R"({"kind": "bars", "series": [{"x": [0], "y": [1], "color": 5000}]})",
       "color from -1 to 1000, got 5000"},
      {R"({"kind": "lines", "bands": [{"from": 2, "to": 1}]})",
       "a band's from not above its to, got 2 and 1"},
      {R"({"kind": "lines", "bands": [{"from": 2}]})", "a number for to, got nothing"},
      {R"({"kind": "lines", "references": [{"x": [1, 2], "y": [1]}]})",
       "one x, one y, or as many of both, got 2 and 1"},
      {R"({"kind": "lines", "y": {"min": 3, "max": 3}})", "min below max of axis y, got 3 and 3"},
      {R"({"kind": "bars", "horizontal": "yes"})", "true or false for horizontal"},
  };
  for (const auto& [panel, wanted] : cases) {
    const std::string text = refusal(panel);
    EXPECT_NE(text.find(wanted), std::string::npos) << panel << " -> " << text;
    EXPECT_NE(text.find("docs/plots.md"), std::string::npos) << panel;
  }
}

TEST(PlotSpec, TakesWhatIsNoNumberAsAPointWithoutAFigure) {
  Json value = to_json(kind_spec(whisker_panel()));
  value["panels"][0]["series"][0]["y"][0] = std::nan("");
  value["panels"][0]["series"][0]["y"][1] = std::numeric_limits<double>::infinity();
  const records::PlotSpec spec = plot_spec_from_json(value, "x");
  EXPECT_FALSE(spec.panels[0].series[0].y[0]);
  EXPECT_FALSE(spec.panels[0].series[0].y[1]);
}

}  // namespace
}  // namespace moonshard::viewer
