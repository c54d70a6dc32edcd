// The mouse at work: panels and plots are drawn without a display and fed events.
#include <functional>

#include <gtest/gtest.h>
#include <imgui.h>
#include <imgui_internal.h>

#include "tests/viewer/headless.h"
#include "tests/viewer/render/plot_kinds.h"
#include "tests/viewer/sample_run.h"
#include "viewer/backend.h"
#include "viewer/panels/panel.h"
#include "viewer/render/plot_renderer.h"

namespace moonshard::viewer {
namespace {

constexpr int kWidth = 480, kHeight = 320;

class Interaction : public HeadlessTest {
 protected:
  Interaction() : HeadlessTest(kWidth, kHeight) {}

  void frames(int count, const std::function<void()>& draw) {
    for (int i = 0; i < count; ++i) {
      backend_->begin_frame(0);
      ImGui::SetNextWindowPos(ImVec2(0, 0));
      ImGui::SetNextWindowSize(ImGui::GetIO().DisplaySize);
      ImGui::Begin("##test", nullptr, ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove);
      draw();
      ImGui::End();
      backend_->end_frame();
    }
  }

  void click(float x, float y, const std::function<void()>& draw) {
    ImGuiIO& io = ImGui::GetIO();
    io.AddMousePosEvent(x, y);
    frames(2, draw);
    io.AddMouseButtonEvent(0, true);
    frames(2, draw);
    io.AddMouseButtonEvent(0, false);
    frames(2, draw);
  }
};

TEST_F(Interaction, HoveringABarShowsItsValue) {
  const PreparedPlot plot = prepare_plot(sample_plot());
  PlotState state;
  const auto draw = [&] {
    draw_plot(plot, state, ImGui::GetContentRegionAvail(), context_->style(), true);
  };
  frames(3, draw);
  const Image before = backend_->read_pixels();
  ImGui::GetIO().AddMousePosEvent(kWidth * 0.75f, kHeight * 0.6f);  // the bar of 20 ms
  frames(4, draw);
  EXPECT_NE(before.rgba, backend_->read_pixels().rgba);
}

TEST_F(Interaction, HoveringEveryKindShowsAValue) {
  for (const NamedSpec& kind : all_kinds()) {
    const PreparedPlot plot = prepare_plot(kind.spec);
    PlotState state;
    const auto draw = [&] {
      draw_plot(plot, state, ImGui::GetContentRegionAvail(), context_->style(), true);
    };
    ImGui::GetIO().AddMousePosEvent(-100, -100);
    frames(4, draw);
    const Image before = backend_->read_pixels();
    bool shown = false;
    // Marks are small: walk over the plot until one is met.
    for (float y = kHeight * 0.25f; y < kHeight * 0.9f && !shown; y += 9) {
      for (float x = kWidth * 0.15f; x < kWidth && !shown; x += 9) {
        ImGui::GetIO().AddMousePosEvent(x, y);
        frames(1, draw);
        shown = ImGui::GetCurrentContext()->TooltipPreviousWindow != nullptr &&
                ImGui::GetCurrentContext()->TooltipPreviousWindow->Active;
      }
    }
    EXPECT_TRUE(shown) << kind.name;
    frames(2, draw);
    EXPECT_NE(before.rgba, backend_->read_pixels().rgba) << kind.name;
  }
}

TEST_F(Interaction, AClickInTheLegendClosesTheGapInAStack) {
  const PreparedPlot plot = prepare_plot(kind_spec(stack_panel()));
  PlotState state;
  const auto draw = [&] {
    draw_plot(plot, state, ImGui::GetContentRegionAvail(), context_->style(), true);
  };
  frames(2, draw);
  for (float x = kWidth * 0.25f; x < kWidth * 0.5f && state.hidden[0].empty(); x += 12) {
    click(x, 27, draw);
  }
  EXPECT_EQ(state.hidden[0], HiddenNames{"parameters"});
}

TEST_F(Interaction, AClickInTheLegendHidesAndShowsASeries) {
  const PreparedPlot plot = prepare_plot(sample_plot());
  PlotState state;
  const auto draw = [&] {
    draw_plot(plot, state, ImGui::GetContentRegionAvail(), context_->style(), true);
  };
  frames(2, draw);
  // The legend is one row under the title; look for the entry by walking over it.
  for (float x = kWidth * 0.3f; x < kWidth * 0.7f && state.hidden[0].empty(); x += 12) {
    click(x, 52, draw);
  }
  ASSERT_EQ(state.hidden[0].size(), 1u);
  click(ImGui::GetIO().MousePos.x, 52, draw);
  EXPECT_TRUE(state.hidden[0].empty());
}

TEST_F(Interaction, AClickOnABarSaysWhichPointItIs) {
  const PreparedPlot plot = prepare_plot(sample_plot());
  PlotState state;
  std::optional<PlotHit> hit;
  const auto draw = [&] {
    draw_plot(plot, state, ImGui::GetContentRegionAvail(), context_->style(), true);
    if (state.clicked) hit = state.hovered;
  };
  frames(3, draw);
  click(kWidth * 0.66f, kHeight * 0.6f, draw);  // the bar of 20 ms
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->at.series, 0u);
  EXPECT_EQ(hit->at.source, 1u);
}

TEST_F(Interaction, EveryPanelSaysWhatToDoNextWithoutAFolder) {
  Workspace workspace;
  Store store;
  AppRequests requests;
  const Snapshot nothing;
  for (const std::unique_ptr<Panel>& panel : make_all_panels()) {
    frames(2, [&] {
      panel->draw(PanelContext{nothing, workspace, store, context_->style(), requests, false});
    });
    const Image image = backend_->read_pixels();
    size_t inked = 0;
    for (size_t i = 0; i < image.rgba.size(); i += 4) inked += image.rgba[i] < 128;
    EXPECT_GT(inked, 100u) << panel->name();
  }
}

}  // namespace
}  // namespace moonshard::viewer
