// What gives way where there is little room: texts are shortened, controls wrap, a legend leaves
// the plot its place. And marks that must not get lost with a part that is switched off.
#include <functional>
#include <memory>

#include <gtest/gtest.h>
#include <imgui.h>

#include "runtime/base/check.h"
#include "tests/viewer/headless.h"
#include "tests/viewer/trace_builder.h"
#include "viewer/backend.h"
#include "viewer/panels/trace_parts.h"
#include "viewer/render/plot_parts.h"
#include "viewer/render/plot_renderer.h"
#include "viewer/render/plot_text.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

class Fitting : public HeadlessTest {
 protected:
  Fitting() : HeadlessTest(600, 400) {}

  // One frame with a window of that width; returns how many corners were drawn.
  int frame(float width, const std::function<void()>& draw) {
    backend_->begin_frame(0);
    ImGui::SetNextWindowPos(ImVec2(0, 0));
    ImGui::SetNextWindowSize(ImVec2(width, 400));
    ImGui::Begin("##test", nullptr, ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove);
    draw();
    ImGui::End();
    ImGui::Render();
    return ImGui::GetDrawData()->TotalVtxCount;
  }
};

TEST_F(Fitting, AShortenedNameKeepsBothOfItsEnds) {
  frame(600, [&] {
    const std::string name = "model.layers.17.self_attn.q_proj";
    EXPECT_EQ(shorten_middle(name, 1000), name);
    const std::string some = shorten_middle(name, 120);
    EXPECT_LE(ImGui::CalcTextSize(some.c_str()).x, 120);
    EXPECT_TRUE(some.starts_with("model") && some.ends_with("proj")) << some;
    EXPECT_EQ(shorten_middle(name, 0), "...");
    EXPECT_EQ(shorten_middle("", 0), "");
    // Letters of two bytes are never cut in half.
    std::string umlauts;
    for (int i = 0; i < 40; ++i) umlauts += "\u00e4";
    for (float width = 0; width < 200; width += 7) {
      const std::string cut = shorten_middle(umlauts, width);
      EXPECT_EQ((cut.size() - 3) % 2, 0u) << cut;
    }
  });
}

TEST_F(Fitting, ALaneIsCalledByItsNameBeforeItsNumber) {
  TraceBuilder builder;
  for (const char* name :
       {"thread 23482 (pt_gloo_runloop)", "stream 7", "thread 5", "thread 5 ()"}) {
    builder.span(builder.lane(0, name), 0, 0, 1, "a");
  }
  const Trace trace = builder.take();
  EXPECT_EQ(lane_title(trace, 0), "pt_gloo_runloop 23482");
  EXPECT_EQ(lane_title(trace, 1), "stream 7");
  EXPECT_EQ(lane_title(trace, 2), "thread 5");
  EXPECT_EQ(lane_title(trace, 3), "thread 5 ()");
}

TEST_F(Fitting, ControlsGoToTheNextLineWhereTheyDoNotFit) {
  const auto second_is_below = [&](float width) {
    bool below = false;
    frame(width, [&] {
      ImGui::Button("one", ImVec2(150, 0));
      const float first = ImGui::GetItemRectMin().y;
      continue_line(150);
      ImGui::Button("two", ImVec2(150, 0));
      below = ImGui::GetItemRectMin().y > first;
    });
    return below;
  };
  EXPECT_FALSE(second_is_below(400));
  EXPECT_TRUE(second_is_below(300));
}

TEST_F(Fitting, ALegendTakesAThirdOfAFigureAtMost) {
  Legend legend;
  for (size_t i = 0; i < 60; ++i) legend.entries.push_back({"a long name " + std::to_string(i), i});
  frame(600, [&] {
    const float one_row = legend_height(legend, 1e5f, 400);
    EXPECT_GT(legend_height(legend, 300, 400), 2 * one_row);
    EXPECT_LE(legend_height(legend, 300, 200), 200.0f / 3 + 0.3f * one_row);
    EXPECT_EQ(legend_height(legend, 300, 10), one_row) << "one row in any case";
    EXPECT_EQ(legend_height(Legend(), 300, 400), 0);
  });
}

TEST_F(Fitting, ALabelKeepsItsUnit) {
  frame(600, [&] {
    const std::string label = "memory above the baseline [KiB]";
    EXPECT_EQ(fit_label(label, 1000), label);
    const std::string cut = fit_label(label, 120);
    EXPECT_TRUE(cut.starts_with("mem") && cut.ends_with("... [KiB]")) << cut;
    EXPECT_LE(ImGui::CalcTextSize(cut.c_str()).x, 120);
    EXPECT_TRUE(fit_label("no unit at all in this one", 80).ends_with("..."));
  });
}

TEST_F(Fitting, NamesAreCutWhereTheyAreAlike) {
  frame(600, [&] {
    const std::vector<std::string> names = {"a_rather_long_run_name: ghost, 1024 tokens",
                                            "a_rather_long_run_name: flash, 1024 tokens", "short"};
    const float width = ImGui::CalcTextSize("a_rather...ghost, 1024 tokens").x;
    const std::vector<std::string> cut = fit_names(names, width);
    EXPECT_TRUE(cut[0].ends_with("...ghost, 1024 tokens")) << cut[0];
    EXPECT_TRUE(cut[1].ends_with("...flash, 1024 tokens")) << cut[1];
    EXPECT_TRUE(cut[0].starts_with("a_")) << cut[0];
    EXPECT_EQ(cut[2], "short");
    for (const std::string& name : cut) EXPECT_LE(ImGui::CalcTextSize(name.c_str()).x, width);
    EXPECT_EQ(fit_names(names, 1000), names);
    const float core = ImGui::CalcTextSize("...ghost...").x;
    EXPECT_EQ(fit_names(names, core)[0], "...ghost...");
    for (const std::string& name : fit_names(names, 40)) {
      EXPECT_LE(ImGui::CalcTextSize(name.c_str()).x, 41);
    }
  });
}

TEST_F(Fitting, AFigureKeepsAReadableSizeInANarrowPanel) {
  records::PlotSpec spec;
  records::PlotPanel panel;
  panel.kind = records::PlotKind::StackedBars;
  panel.horizontal = true;
  panel.series.resize(1);
  for (int i = 0; i < 30; ++i) {
    panel.x.categories.push_back(std::to_string(i));
    panel.series[0].x.push_back(i);
    panel.series[0].y.push_back(1.0);
  }
  spec.panels = {panel, panel, panel};
  PreparedPlot plot = prepare_plot(spec);
  frame(600, [&] {
    const float em = ImGui::GetFontSize();
    EXPECT_EQ(readable_columns(plot, 3, 60 * em), 3u);
    EXPECT_EQ(readable_columns(plot, 3, 30 * em), 2u);
    EXPECT_EQ(readable_columns(plot, 3, 1), 1u);
    EXPECT_GT(readable_height(plot, 60 * em, context_->style()), 30 * em) << "a line for each bar";
    const float one_row = readable_height(plot, 60 * em, context_->style());
    plot.columns = 1;
    EXPECT_GT(readable_height(plot, 60 * em, context_->style()), 2 * one_row);
    const float without = readable_height(plot, 30 * em, context_->style());
    plot.note =
        "a note that is much too long for a single line of a figure of this width, surely so";
    EXPECT_GT(readable_height(plot, 30 * em, context_->style()), without + 2 * em) << "both lines";
  });
}

TEST_F(Fitting, AStackThatFailedKeepsItsMarkWhenItsFirstPartIsOff) {
  const auto corners = [&](const char* status, bool hide) {
    records::PlotSpec spec;
    records::PlotPanel panel;
    panel.kind = records::PlotKind::StackedBars;
    panel.x.categories = {"a", "b"};
    for (const char* name : {"first", "second"}) {
      records::PlotSeries series;
      series.name = name;
      series.x = {0, 1};
      series.y = {1.0, std::nullopt};
      series.status = {"ok", status};
      panel.series.push_back(series);
    }
    spec.panels.push_back(panel);
    const PreparedPlot plot = prepare_plot(spec);
    PlotState state;
    state.hidden.resize(1);
    if (hide) state.hidden[0].insert("first");
    int count = 0;
    for (int i = 0; i < 2; ++i) {
      count =
          frame(500, [&] { draw_plot(plot, state, ImVec2(450, 350), context_->style(), true); });
    }
    return count;
  };
  // A longer word has more letters, each with its corners, as long as it is drawn at all.
  EXPECT_GT(corners("a long word", false), corners("oom", false));
  EXPECT_GT(corners("a long word", true), corners("oom", true));
}

}  // namespace
}  // namespace moonshard::viewer
