// The whole program driven by ImGui's test engine: real clicks and keys go through ImGui's input.
// Without a display by default; with MOONSHARD_UI_WINDOW=1 in a GLFW window (under Xvfb).
#pragma once

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include <imgui_test_engine/imgui_te_context.h>
#include <imgui_test_engine/imgui_te_engine.h>

#include "runtime/base/errors.h"
#include "viewer/application.h"
#include "viewer/backend.h"

namespace moonshard::viewer {

class UiSession {
 public:
  static constexpr int kWidth = 1400, kHeight = 900;

  explicit UiSession(const ApplicationOptions& options) {
    engine_ = ImGuiTestEngine_CreateContext();
    ImGuiTestEngineIO& io = ImGuiTestEngine_GetIO(engine_);
    io.ConfigRunSpeed = ImGuiTestRunSpeed_Fast;
    io.ConfigVerboseLevel = ImGuiTestVerboseLevel_Error;
    io.ConfigLogToTTY = true;
    io.ConfigNoThrottle = true;
    io.ConfigMouseDrawCursor = false;
    app_ = std::make_unique<Application>(options);
    const char* window = std::getenv("MOONSHARD_UI_WINDOW");
    if (window && *window == '1') {
      backend_ = make_window_backend({"moonshard test", kWidth, kHeight});
    } else {
      auto headless = make_headless_backend();
      headless->resize(kWidth, kHeight, 1.0f);
      backend_ = std::move(headless);
    }
    ImGuiTestEngine_Start(engine_, ImGui::GetCurrentContext());
    app_->document().follow();
  }

  ~UiSession() {
    ImGuiTestEngine_Stop(engine_);
    backend_.reset();
    app_.reset();
    ImGuiTestEngine_DestroyContext(engine_);
  }
  UiSession(const UiSession&) = delete;
  UiSession& operator=(const UiSession&) = delete;

  Application& app() { return *app_; }

  /// Runs steps of a user to their end; failures in them are failures of the test.
  void run(const std::function<void(ImGuiTestContext*)>& steps) {
    ImGuiTest* test = ImGuiTestEngine_RegisterTest(engine_, "viewer", "steps", __FILE__, __LINE__);
    test->TestFunc = steps;
    ImGuiTestEngine_QueueTest(engine_, test, ImGuiTestRunFlags_None);
    while (!ImGuiTestEngine_IsTestQueueEmpty(engine_)) frame();
    EXPECT_EQ(test->Output.Status, ImGuiTestStatus_Success);
    ImGuiTestEngine_UnregisterTest(engine_, test);
  }

  void frame() {
    app_->set_density(backend_->density());
    if (!backend_->begin_frame(0)) return;
    app_->draw_frame();
    // Drawing by software is the slow part, and clicks do not need it: some frames are enough for
    // glyphs and pictures to be made.
    if (++frames_ % 8 == 0) {
      backend_->end_frame();
    } else {
      ImGui::Render();
    }
    ImGuiTestEngine_PostSwap(engine_);
  }

  /// Inside steps: goes on drawing until something is so; false when it never was.
  static bool wait_until(ImGuiTestContext* ctx, const std::function<bool()>& so) {
    for (int i = 0; i < 600; ++i) {
      if (so()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ctx->Yield();
    }
    return false;
  }

 private:
  ImGuiTestEngine* engine_ = nullptr;
  int frames_ = 0;
  std::unique_ptr<Application> app_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace moonshard::viewer
