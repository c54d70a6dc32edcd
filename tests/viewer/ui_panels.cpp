// A user at work: opens, sorts, filters, selects, compares, exports, follows a sweep.
#include <fstream>
#include <iterator>

#include "tests/viewer/grid_run.h"
#include "tests/viewer/headless.h"
#include "tests/viewer/sample_run.h"
#include "tests/viewer/ui_session.h"
#include "viewer/panels/run_table.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Ui : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_not_drawn(); !why.empty()) GTEST_SKIP() << why;
    folder_ = make_sample_run(root_.path());
  }

  void start(const std::vector<fs::path>& folders) {
    ApplicationOptions options;
    options.folders = folders;
    session_ = std::make_unique<UiSession>(options);
    session_->run([this, count = folders.size()](ImGuiTestContext* ctx) {
      IM_CHECK(UiSession::wait_until(ctx, [&] {
        return !app().document().loading() && app().workspace().snapshot().runs.size() == count;
      }));
      ctx->Yield(4);
    });
  }

  Application& app() { return session_->app(); }
  Workspace& workspace() { return app().workspace(); }
  void run(const std::function<void(ImGuiTestContext*)>& steps) { session_->run(steps); }
  const Panel& panel(std::string_view name) {
    for (const auto& panel : app().panels()) {
      if (panel->name() == name) return *panel;
    }
    throw UsageError("no such panel");
  }

  TemporaryFolder root_;
  fs::path folder_;
  std::unique_ptr<UiSession> session_;
};

TEST_F(Ui, OpensAFolderByTheChooser) {
  start({});
  run([&](ImGuiTestContext* ctx) {
    ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_O);
    ctx->SetRef("Open a run folder");
    ctx->ItemInputValue("##path", folder_.c_str());
    IM_CHECK(UiSession::wait_until(ctx, [&] { return workspace().shown().size() == 4; }));
  });
  ASSERT_EQ(app().settings().recent.size(), 1u);
  EXPECT_EQ(fs::path(app().settings().recent[0]), fs::absolute(folder_));
}

TEST_F(Ui, SaysWhatIsWrongWithAFolderThatIsNone) {
  start({});
  run([&](ImGuiTestContext* ctx) {
    ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_O);
    ctx->SetRef("Open a run folder");
    ctx->ItemInputValue("##path", "/no/such/folder");
    ctx->ItemClick("**/Close");
  });
  EXPECT_TRUE(workspace().snapshot().runs.empty());
}

TEST_F(Ui, FiltersTheTableAndAllThatFollowsIt) {
  start({folder_});
  run([&](ImGuiTestContext* ctx) {
    ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_F);
    ctx->Yield(2);
    ctx->KeyChars("mode = ghost");
    ctx->Yield(2);
    IM_CHECK_EQ(workspace().shown().size(), 2u);
    ctx->KeyPress(ImGuiKey_Escape);
    ctx->Yield(2);
    IM_CHECK_EQ(workspace().shown().size(), 4u);
  });
}

TEST_F(Ui, SortsByAClickOnAHeaderAndSelectsByAClickOnARow) {
  start({folder_});
  run([&](ImGuiTestContext* ctx) {
    ctx->SetRef("Runs");
    ctx->ItemClick("**/avg time [ms]##metric:avg_time_ms");
    ctx->Yield(2);
    ctx->ItemClick("**/##row");  // the first row there is
    ctx->Yield(2);
  });
  EXPECT_EQ(workspace().selected().id, "p1");  // 9.75 ms stands before 12.5 ms
}

TEST_F(Ui, StepsThroughPointsByKeys) {
  start({folder_});
  run([&](ImGuiTestContext* ctx) { ctx->Yield(2); });
  EXPECT_EQ(workspace().selected().id, "p0") << "selected on opening";
  run([&](ImGuiTestContext* ctx) {
    ctx->KeyPress(ImGuiMod_Alt | ImGuiKey_DownArrow);
    ctx->KeyPress(ImGuiMod_Alt | ImGuiKey_DownArrow);
    ctx->KeyPress(ImGuiMod_Alt | ImGuiKey_UpArrow);
  });
  EXPECT_EQ(workspace().selected().id, "p1");
}

TEST_F(Ui, PinsAColumnToTheLeftEnd) {
  start({folder_});
  const auto place = [&](const char* key) {
    return panel("run_table").script(workspace()).find(key);
  };
  run([&](ImGuiTestContext* ctx) {
    ctx->SetRef("Runs");
    ctx->Yield(2);
  });
  EXPECT_LT(place("point.options[\"mode\"]"), place("point.metrics[\"peak_memory_bytes\"]"));
  run([&](ImGuiTestContext* ctx) {
    ctx->SetRef("Runs");
    ctx->ItemClick("**/measured peak [MiB]##metric:peak_memory_bytes", ImGuiMouseButton_Right);
    ctx->ItemClick("//$FOCUSED/Pin this column");
    ctx->Yield(3);
  });
  EXPECT_GT(place("point.options[\"mode\"]"), place("point.metrics[\"peak_memory_bytes\"]"));
}

TEST_F(Ui, AxesBeginAtZeroUntilTheUserCutsThem) {
  start({folder_});
  const auto cut = [&] { return panel("tradeoff").shown_plot()->panels[0].y.min.has_value(); };
  run([&](ImGuiTestContext* ctx) {
    ctx->WindowFocus("Trade-off");
    ctx->SetRef("Trade-off");
    ctx->ComboClick("##x/avg time##avg_time_ms");
    ctx->Yield(3);
  });
  ASSERT_NE(panel("tradeoff").shown_plot(), nullptr);
  EXPECT_FALSE(cut());
  run([&](ImGuiTestContext* ctx) {
    ctx->SetRef("Trade-off");
    ctx->ItemClick("from zero");
    ctx->Yield(3);
  });
  EXPECT_TRUE(cut());
}

TEST_F(Ui, HeatMapsHaveOneScaleUntilTheUserSplitsIt) {
  start({make_sharding_grid(root_.path() / "grid")});
  const auto split = [&] {
    return panel("heat_map").shown_plot()->panels[0].value.min.has_value();
  };
  run([&](ImGuiTestContext* ctx) {
    ctx->WindowFocus("Heat map");
    ctx->Yield(3);
  });
  ASSERT_NE(panel("heat_map").shown_plot(), nullptr);
  EXPECT_FALSE(split());
  run([&](ImGuiTestContext* ctx) {
    ctx->SetRef("Heat map");
    ctx->ItemClick("one scale");
    ctx->Yield(3);
  });
  EXPECT_TRUE(split());
}

TEST_F(Ui, ColoursAndFacetsAreTheUsersToChoose) {
  start({folder_});
  run([&](ImGuiTestContext* ctx) {
    ctx->WindowFocus("Comparison");
    ctx->SetRef("Comparison");
    ctx->ComboClick("##what/time, memory");
    ctx->ComboClick("colour/seq_length##seq_length");
    ctx->ComboClick("facets/mode##mode");
    ctx->Yield(3);
  });
  const records::PlotSpec* spec = panel("comparison").shown_plot();
  ASSERT_NE(spec, nullptr);
  EXPECT_EQ(spec->panels[0].title, "none");
  ASSERT_EQ(spec->panels[0].series.size(), 2u);
  EXPECT_EQ(spec->panels[0].series[0].name, "64 tokens");
}

TEST_F(Ui, AKeyWorksAsSoonAsItsCommandDoes) {
  start({folder_});
  run([&](ImGuiTestContext* ctx) {
    workspace().select(PointRef{0, 1});
    ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_D);
    ctx->Yield(2);
  });
  EXPECT_TRUE(workspace().pinned({0, 1}));
}

TEST_F(Ui, PicksABaselineAndTheCostIsThereAtOnce) {
  start({folder_});
  run([&](ImGuiTestContext* ctx) {
    ctx->Yield(2);
    ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_B);  // p0, selected on opening
    ctx->Yield(3);
  });
  EXPECT_EQ(workspace().baseline().kind, Baseline::Kind::Point);
  EXPECT_DOUBLE_EQ(workspace().overhead({0, 1}).memory_percent, 200.0);
  ASSERT_NE(panel("comparison").shown_plot(), nullptr);
  run([&](ImGuiTestContext* ctx) {
    ctx->SetRef("Comparison");
    ctx->ComboClick("baseline/mode = none##mode = none");
    ctx->Yield(3);
  });
  EXPECT_EQ(workspace().baseline().kind, Baseline::Kind::Axis);
}

TEST_F(Ui, ARowsMenuPinsAndHides) {
  start({folder_});
  run([&](ImGuiTestContext* ctx) {
    ctx->SetRef("Runs");
    ctx->ItemClick("**/##row", ImGuiMouseButton_Right);
    ctx->ItemClick("//$FOCUSED/Hide this point");
    ctx->Yield(2);
    IM_CHECK_EQ(workspace().shown().size(), 3u);
    ctx->ItemClick("**/##row");
    ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_D);
    ctx->Yield(2);
  });
  EXPECT_TRUE(workspace().pinned({0, 1}));
  EXPECT_TRUE(workspace().hidden({0, 0}));
}

TEST_F(Ui, ThePaletteFindsACommandByItsLetters) {
  start({folder_});
  run([&](ImGuiTestContext* ctx) {
    ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_P);
    ctx->Yield(2);
    ctx->KeyChars("light th");
    ctx->KeyPress(ImGuiKey_Enter);
    ctx->Yield(2);
  });
  EXPECT_EQ(app().settings().theme, Theme::Light);
}

TEST_F(Ui, AClosedPanelComesBack) {
  start({folder_});
  run([&](ImGuiTestContext* ctx) {
    ctx->WindowClose("Runs");
    ctx->Yield(2);
    IM_CHECK(!panel("run_table").open);
    ctx->KeyPress(ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_T);
    ctx->Yield(2);
  });
  EXPECT_TRUE(panel("run_table").open);
}

TEST_F(Ui, TheLayoutIsRemembered) {
  start({folder_});
  run([&](ImGuiTestContext* ctx) {
    ctx->WindowClose("Details");
    ctx->Yield(2);
  });
  ApplicationOptions next;
  next.folders = {folder_};
  next.settings = app().settings();
  EXPECT_NE(next.settings.layout.find("Docking"), std::string::npos);
  session_.reset();
  session_ = std::make_unique<UiSession>(next);
  run([&](ImGuiTestContext* ctx) { ctx->Yield(4); });
  EXPECT_FALSE(panel("details").open);
  EXPECT_TRUE(panel("run_table").open);
}

TEST_F(Ui, ExportsAPictureAndItsData) {
  start({folder_});
  const fs::path picture = root_.path() / "saved.png", data = root_.path() / "saved.csv";
  const auto save = [&](const char* button, const fs::path& file) {
    run([&](ImGuiTestContext* ctx) {
      ctx->WindowFocus("Plots");
      ctx->Yield(4);
      IM_CHECK(UiSession::wait_until(ctx, [&] { return panel("plot").shown_plot() != nullptr; }));
      ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_E);
      ctx->Yield(2);
      ctx->SetRef("Export picture");
      ctx->ItemInputValue("file", file.c_str());
      ctx->ItemClick(button);
      IM_CHECK(UiSession::wait_until(ctx, [&] { return fs::exists(file); }));
      IM_CHECK(UiSession::wait_until(ctx, [&] {
        return !ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel);
      }));
    });
  };
  save("Save PNG", picture);
  save("Save data as CSV", data);
  EXPECT_NE(text_of(data).find("ghost,128,,oom"), std::string::npos) << text_of(data);
  std::ifstream png(picture, std::ios::binary);
  std::string magic(4, '\0');
  png.read(magic.data(), 4);
  EXPECT_EQ(magic, "\x89PNG");
}

TEST_F(Ui, AsksBeforeItReplacesAFile) {
  start({folder_});
  const fs::path data = root_.path() / "step_1.5.csv";
  write_text(data, "mine");
  std::string after_one, after_two;
  run([&](ImGuiTestContext* ctx) {
    ctx->WindowFocus("Plots");
    ctx->Yield(4);
    IM_CHECK(UiSession::wait_until(ctx, [&] { return panel("plot").shown_plot() != nullptr; }));
    ctx->KeyPress(ImGuiMod_Ctrl | ImGuiKey_E);
    ctx->Yield(2);
    ctx->SetRef("Export picture");
    ctx->ItemInputValue("file", (root_.path() / "step_1.5").c_str());
    ctx->ItemClick("Save data as CSV");
    ctx->Yield(4);
    after_one = text_of(data);
    ctx->ItemClick("Save data as CSV");
    IM_CHECK(UiSession::wait_until(ctx, [&] { return text_of(data) != "mine"; }));
    after_two = text_of(data);
  });
  EXPECT_EQ(after_one, "mine");
  EXPECT_NE(after_two.find("ghost,128,,oom"), std::string::npos) << after_two;
}

TEST_F(Ui, CopiesTheTableAndAScript) {
  start({folder_});
  // The test engine has a clipboard of its own while steps run.
  std::string table, script;
  run([&](ImGuiTestContext* ctx) {
    ctx->SetRef("Runs");
    ctx->ItemClick("Copy");
    ctx->ItemClick("//$FOCUSED/Table as Markdown");
    ctx->Yield(2);
    table = ImGui::GetClipboardText();
    ctx->WindowFocus("//Runs");
    ctx->KeyPress(ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_C);
    ctx->Yield(2);
    script = ImGui::GetClipboardText();
  });
  EXPECT_NE(table.find("| oom"), std::string::npos) << table;
  EXPECT_NE(script.find("ms.load"), std::string::npos) << script;
}

TEST_F(Ui, FollowsASweepThatGoesOn) {
  start({folder_});
  records::RunFolderWriter writer = records::RunFolderWriter::open(folder_);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  writer.write_result(
      "p3", Json{{"schema_version", 1}, {"status", "ok"}, {"metrics", {{"avg_time_ms", 3.25}}}});
  writer.write_file("progress.json",
                    R"({"schema_version": 1, "state": "running", "total": 4, "done": 3,)"
                    R"( "failed": 1, "elapsed_s": 12, "eta_s": 4, "current": "mode=ghost"})");
  run([&](ImGuiTestContext* ctx) {
    IM_CHECK(UiSession::wait_until(ctx, [&] { return workspace().head({0, 3}).status == "ok"; }));
    IM_CHECK(UiSession::wait_until(ctx, [&] { return workspace().run(0).progress.eta_s == 4; }));
    ctx->WindowFocus("Sweeps");
    ctx->Yield(2);
  });
  EXPECT_DOUBLE_EQ(workspace().run(0).metric(3, "avg_time_ms"), 3.25);
}

TEST_F(Ui, EveryPanelCanBeBroughtToTheFront) {
  start({folder_});
  for (const auto& shown : app().panels()) {
    run([&](ImGuiTestContext* ctx) {
      ctx->WindowFocus(shown->title());
      ctx->KeyPress(ImGuiMod_Alt | ImGuiKey_DownArrow);
      ctx->Yield(3);
    });
  }
  run([&](ImGuiTestContext* ctx) {
    ctx->KeyPress(ImGuiKey_F1);
    ctx->Yield(2);
    IM_CHECK(ctx->WindowInfo("Shortcuts").Window != nullptr);
  });
}

}  // namespace
}  // namespace moonshard::viewer
