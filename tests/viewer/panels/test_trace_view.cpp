// The trace under mouse and keys, drawn without a display; how much a frame looks at; odd traces.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include <gtest/gtest.h>
#include <imgui.h>

#include "runtime/base/check.h"
#include "tests/viewer/headless.h"
#include "tests/viewer/trace_builder.h"
#include "viewer/backend.h"
#include "viewer/panels/trace_view.h"

namespace moonshard::viewer {
namespace {

constexpr int kWidth = 900, kHeight = 500;

class TraceView : public HeadlessTest {
 protected:
  TraceView() : HeadlessTest(kWidth, kHeight) {}

  void show(Trace trace) {
    trace_ = std::move(trace);
    index_ = build_trace_index(trace_);
    view_ = {};
    frames(2);
    frames(1, true);
  }

  // Two lanes: 100 us of "long" with "short" inside, then a gap; 40 rows below to scroll.
  void show_small() {
    TraceBuilder builder;
    const size_t lane = builder.lane(0, "main");
    builder.span(lane, 0, 0, 100, "long").span(lane, 0, 150, 50, "late");
    builder.span(lane, 1, 20, 10, "short").span(lane, 1, 60, 10, "short");
    const size_t deep = builder.lane(0, "deep");
    for (size_t row = 0; row < 40; ++row) builder.span(deep, row, 0, 200, "deep");
    show(builder.take());
  }

  // Only some are really drawn: software takes its time for it, and the input does not care.
  void frames(int count, bool draw = false) {
    for (int i = 0; i < count; ++i) {
      backend_->begin_frame(0);
      ImGui::SetNextWindowPos(ImVec2(0, 0));
      ImGui::SetNextWindowSize(ImGui::GetIO().DisplaySize);
      ImGui::Begin("##test", nullptr, ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove);
      draw_trace(trace_, index_, view_, context_->style());
      ImGui::End();
      draw ? backend_->end_frame() : ImGui::Render();
    }
  }

  float x_of(double time_us) const {
    const double share = (time_us - view_.window.start_us) / view_.window.length_us();
    return view_.chart_min.x + static_cast<float>(share) * (view_.chart_max.x - view_.chart_min.x);
  }

  double time_at(float x) const {
    const double share =
        static_cast<double>((x - view_.chart_min.x) / (view_.chart_max.x - view_.chart_min.x));
    return view_.window.start_us + share * view_.window.length_us();
  }

  // The middle of a row of a lane on the screen.
  float y_of(uint32_t lane, size_t row) const {
    for (const TraceViewCache::Strip& strip : view_.cache.strips) {
      if (strip.kind != TraceViewCache::Strip::Kind::Lane || strip.index != lane) continue;
      const float em = view_.cache.font_size;
      return view_.chart_min.y - view_.scroll_y + strip.y + 0.2f * em +
             1.25f * em * (static_cast<float>(row) + 0.5f);
    }
    ADD_FAILURE() << "lane " << lane << " is not shown";
    return 0;
  }

  void move(float x, float y) {
    ImGui::GetIO().AddMousePosEvent(x, y);
    frames(2);
  }
  void button(int number, bool down) {
    ImGui::GetIO().AddMouseButtonEvent(number, down);
    frames(2);
  }
  void click(float x, float y, int number = 0) {
    move(x, y);
    button(number, true);
    button(number, false);
  }
  void drag(float from_x, float to_x, float y, int number = 0) {
    move(from_x, y);
    button(number, true);
    move((from_x + to_x) / 2, y);
    move(to_x, y);
    button(number, false);
  }
  void wheel(float by) {
    ImGui::GetIO().AddMouseWheelEvent(0, by);
    frames(2);
  }
  void press(ImGuiKey key) {
    ImGui::GetIO().AddKeyEvent(key, true);
    frames(1);
    ImGui::GetIO().AddKeyEvent(key, false);
    frames(2);
  }
  std::string selected_name() const {
    return view_.selected_name ? trace_.names[*view_.selected_name] : "";
  }
  Trace trace_;
  TraceIndex index_;
  TraceViewState view_;
};

TEST_F(TraceView, ShowsAllAtFirst) {
  show_small();
  EXPECT_LE(view_.window.start_us, 0);
  EXPECT_GE(view_.window.end_us, 200);
}

TEST_F(TraceView, TheWheelZoomsWhereTheMouseIs) {
  show_small();
  const double before = view_.window.length_us();
  move(x_of(60), y_of(0, 1));
  const double under_mouse = time_at(ImGui::GetIO().MousePos.x);
  wheel(3);
  EXPECT_LT(view_.window.length_us(), before * 0.6);
  EXPECT_NEAR(time_at(ImGui::GetIO().MousePos.x), under_mouse, 1e-3);
  for (int i = 0; i < 5; ++i) wheel(30);
  EXPECT_GT(view_.window.length_us(), 0);
  EXPECT_NEAR(time_at(ImGui::GetIO().MousePos.x), under_mouse, 1e-3);
  for (int i = 0; i < 5; ++i) wheel(-30);
  EXPECT_NEAR(view_.window.length_us(), before, before * 0.01);
}

TEST_F(TraceView, ShiftAndTheWheelScrollTheLanes) {
  show_small();
  const TimeWindow before = view_.window;
  move(x_of(60), y_of(0, 1));
  ImGui::GetIO().AddKeyEvent(ImGuiMod_Shift, true);
  wheel(-2);
  ImGui::GetIO().AddKeyEvent(ImGuiMod_Shift, false);
  frames(2);
  EXPECT_GT(view_.scroll_y, 10);
  EXPECT_EQ(view_.window, before);
}

TEST_F(TraceView, DraggingMovesThroughTime) {
  show_small();
  view_.window = {50, 100};
  frames(1);
  const float width = view_.chart_max.x - view_.chart_min.x;
  drag(view_.chart_min.x + width * 0.5f, view_.chart_min.x + width * 0.3f, y_of(0, 1));
  EXPECT_NEAR(view_.window.start_us, 60, 1);
  EXPECT_NEAR(view_.window.length_us(), 50, 1e-6);
  EXPECT_FALSE(view_.selected);
}

TEST_F(TraceView, AClickSelectsTheSpanAndADoubleClickZoomsToIt) {
  show_small();
  click(x_of(65), y_of(0, 1));
  ASSERT_TRUE(view_.selected);
  EXPECT_EQ(*view_.selected, (SpanRef{1, 1}));
  EXPECT_EQ(selected_name(), "short");
  click(x_of(125), y_of(0, 0));
  EXPECT_FALSE(view_.selected);
  move(x_of(170), y_of(0, 0));
  ImGuiIO& io = ImGui::GetIO();
  for (int i = 0; i < 2; ++i) {
    io.AddMouseButtonEvent(0, true);
    frames(1);
    io.AddMouseButtonEvent(0, false);
    frames(1);
  }
  frames(2);
  EXPECT_EQ(selected_name(), "late");
  EXPECT_LT(view_.window.length_us(), 80);
  EXPECT_LT(view_.window.start_us, 150);
  EXPECT_GT(view_.window.end_us, 200);
}

TEST_F(TraceView, ARightDragAndAShiftDragSumARange) {
  show_small();
  drag(x_of(40), x_of(160), y_of(0, 1), 1);
  ASSERT_TRUE(view_.range);
  EXPECT_NEAR(view_.range->start_us, 40, 1);
  EXPECT_NEAR(view_.range->end_us, 160, 1);
  ASSERT_TRUE(view_.cache.range_sums.done());
  EXPECT_NEAR(view_.cache.range_sums.lanes()[0].busy_us, 70, 2);
  press(ImGuiKey_Escape);
  EXPECT_FALSE(view_.range);
  ImGui::GetIO().AddKeyEvent(ImGuiMod_Shift, true);
  drag(x_of(120), x_of(20), y_of(0, 1));
  ImGui::GetIO().AddKeyEvent(ImGuiMod_Shift, false);
  frames(1);
  ASSERT_TRUE(view_.range);
  EXPECT_NEAR(view_.range->start_us, 20, 1);
  EXPECT_NEAR(view_.range->end_us, 120, 1);
}

TEST_F(TraceView, KeysZoomPanAndShowAll) {
  show_small();
  click(x_of(125), y_of(0, 0));  // focus
  const TimeWindow all = view_.window;
  press(ImGuiKey_W);
  press(ImGuiKey_W);
  const TimeWindow near = view_.window;
  EXPECT_LT(near.length_us(), all.length_us());
  press(ImGuiKey_D);
  EXPECT_GT(view_.window.start_us, near.start_us);
  press(ImGuiKey_A);
  EXPECT_NEAR(view_.window.start_us, near.start_us, 1e-6);
  press(ImGuiKey_S);
  EXPECT_GT(view_.window.length_us(), near.length_us());
  press(ImGuiKey_Home);
  EXPECT_EQ(view_.window, all);
}

TEST_F(TraceView, FindsTypesAndStepsThroughHits) {
  show_small();
  click(x_of(125), y_of(0, 0));
  press(ImGuiKey_F);
  for (const char c : std::string("short")) {
    ImGui::GetIO().AddInputCharacter(static_cast<unsigned>(c));
    frames(1);
  }
  frames(2);
  EXPECT_STREQ(view_.search, "short");
  EXPECT_EQ(view_.cache.search.num_hits(), 2u);
  press(ImGuiKey_Enter);
  EXPECT_EQ(view_.selected, (SpanRef{1, 0}));
  click(x_of(125), y_of(0, 0));  // back to the lanes: letters are keys again
  EXPECT_FALSE(view_.selected);
  press(ImGuiKey_N);
  press(ImGuiKey_N);
  EXPECT_EQ(view_.selected, (SpanRef{1, 1}));
  press(ImGuiKey_N);  // past the last: the first
  EXPECT_EQ(view_.selected, (SpanRef{1, 0}));
  press(ImGuiKey_P);
  EXPECT_EQ(view_.selected, (SpanRef{1, 1}));
  press(ImGuiKey_Escape);
  press(ImGuiKey_Escape);
  EXPECT_STREQ(view_.search, "");
}

TEST_F(TraceView, ALaneFoldsByItsNameAndOpensForAHit) {
  show_small();
  const float full = view_.cache.total_height;
  click(view_.chart_min.x - 40, y_of(1, 0));
  EXPECT_LT(view_.cache.total_height, full / 2);
  show_span(trace_, index_, view_, SpanRef{30, 0});
  frames(3);
  EXPECT_EQ(view_.cache.total_height, full);
  EXPECT_GT(y_of(1, 28), view_.chart_min.y);
  EXPECT_LT(y_of(1, 28), view_.chart_max.y);
}

TEST_F(TraceView, AFrameLooksAtPixelsNotAtEvents) {
  show(make_big_trace(50'000));
  const uint64_t few = view_.num_looked;
  show(make_big_trace(800'000));
  for (const double share : {1.0, 0.1, 1e-3, 1e-6}) {
    view_.window = {trace_.length_us * 0.4, trace_.length_us * (0.4 + share)};
    frames(1);
    // Sixteen times the events: four more steps of each bisection.
    EXPECT_LT(view_.num_looked, few * 5) << share;
    EXPECT_LT(view_.num_boxes, 14u * kWidth) << share;
  }
}

TEST_F(TraceView, DrawsOddTraces) {
  TraceBuilder builder;
  const size_t lane = builder.lane(-1, "%s%n##\x1b[2J\xff");
  builder.span(lane, 0, 0, 0, "%n##").span(lane, 0, 0, 0, "").span(lane, 0, 0, 0, "\x01");
  builder.sample("%s", 0, NAN).sample("%s", 1, 1e308).sample("%s", 2, -1e308);
  show(builder.take());
  TraceBuilder wide;
  const size_t far = wide.lane(0, "");
  wide.span(far, 0, 0, 1, "first").span(far, 0, 1e15, 3e38, "last");
  show(wide.take());
  view_.window = {NAN, std::numeric_limits<double>::infinity()};
  frames(2);
  EXPECT_TRUE(std::isfinite(view_.window.start_us) && std::isfinite(view_.window.end_us));
  move(x_of(view_.window.length_us() / 2), y_of(0, 0));
  for (int i = 0; i < 20; ++i) wheel(30);
  frames(1, true);
  show(Trace{});
}

}  // namespace
}  // namespace moonshard::viewer
