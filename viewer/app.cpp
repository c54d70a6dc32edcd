#include "viewer/app.h"

#include <chrono>
#include <memory>
#include <mutex>

#include <fmt/format.h>
#include <imgui.h>

#include "runtime/base/check.h"

#include "viewer/folder_dialog.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

// ImGui needs a few frames after an event until windows, tables and plots have settled.
constexpr int kSettleFrames = 4;
// Tooltips come a while after the mouse rests: for so long frames go on, a few in a second. Then
// nothing is drawn until there is input or something new to show.
constexpr double kLively_s = 1.5, kLivelyWait_s = 0.1, kIdleWait_s = 1.0;
constexpr double kBusyWait_s = 0.03;  // while something is read, for its progress bar
constexpr int kWidth = 1440, kHeight = 900;
constexpr int kMaxScreenshotRounds = 20;

ApplicationOptions application_options(const AppOptions& options, const Settings& settings) {
  ApplicationOptions result = options;
  // Folders of run folders become these. Throws where there is nothing to open: an error to report
  // at once, not an empty window.
  OpenablePaths found = find_openable(options.folders);
  result.folders = std::move(found.runs);
  result.snapshots = std::move(found.snapshots);
  result.settings = settings;
  if (options.theme) result.settings.theme = *options.theme;
  if (options.text_scale > 0) result.settings.text_scale = options.text_scale;
  return result;
}

// Reading threads live as long as the application, the window a little shorter.
class Waker {
 public:
  void wake() {
    const std::lock_guard lock(mutex_);
    if (backend_) backend_->wake();
  }
  void set(Backend* backend) {
    const std::lock_guard lock(mutex_);
    backend_ = backend;
  }

 private:
  std::mutex mutex_;
  Backend* backend_ = nullptr;
};

int first_positive(int a, int b, int c) {
  return a > 0 ? a : b > 0 ? b : c;
}

}  // namespace

void run_window(const AppOptions& options) {
  const std::filesystem::path settings_file = settings_path();
  const Settings settings = load_settings(settings_file);
  ApplicationOptions application = application_options(options, settings);
  WindowOptions window;
  if (!application.folders.empty()) {
    window.title += " - " + clean_text(application.folders.front().filename().string(), 128);
  }
  window.width = first_positive(options.width, settings.width, kWidth);
  window.height = first_positive(options.height, settings.height, kHeight);
  const auto waker = std::make_shared<Waker>();
  application.wake = [waker] { waker->wake(); };
  Application app(application);
  const std::unique_ptr<Backend> backend = make_window_backend(window);
  waker->set(backend.get());
  const std::shared_ptr<void> lease(nullptr, [&](void*) { waker->set(nullptr); });
  app.document().follow();
  // A window that closes by itself is a test: it leaves nothing behind.
  const bool remembers = options.max_frames == 0;
  const auto remember = [&] {
    Settings kept = app.settings();
    kept.width = static_cast<int>(ImGui::GetIO().DisplaySize.x);
    kept.height = static_cast<int>(ImGui::GetIO().DisplaySize.y);
    if (remembers) save_settings(kept, settings_file);
    ImGui::GetIO().WantSaveIniSettings = false;
  };
  int busy_frames = kSettleFrames;
  const auto seconds = [start = std::chrono::steady_clock::now()] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double lively_until = kLively_s;
  for (int frame = 0; options.max_frames == 0 || frame < options.max_frames; ++frame) {
    if (busy_frames <= 0 && options.max_frames == 0) {
      const bool lively = seconds() < lively_until;
      const double wait = app.busy() ? kBusyWait_s : lively ? kLivelyWait_s : kIdleWait_s;
      if (backend->wait(wait)) {
        busy_frames = kSettleFrames;
        lively_until = seconds() + kLively_s;
      } else if (!lively && !app.busy()) {
        continue;  // the picture on the screen is still right
      }
    }
    --busy_frames;
    app.set_density(backend->density());
    if (!backend->begin_frame(0)) break;
    if (ImGui::IsAnyMouseDown()) busy_frames = kSettleFrames;
    if (ImGui::GetIO().WantTextInput) lively_until = seconds() + kLively_s;  // a blinking cursor
    app.open(backend->take_dropped());
    app.draw_frame();
    backend->end_frame();
    if (ImGui::GetIO().WantSaveIniSettings) remember();  // ImGui asks some seconds after a change
    if (app.quit()) break;
  }
  remember();
}

namespace {

// Draws until nothing is read any more; what is read may ask for more to be read.
void draw_until_settled(Application& app, HeadlessBackend& backend) {
  app.set_density(1.0f);
  app.document().load_now();
  app.check_request();
  for (int round = 0; round < kMaxScreenshotRounds; ++round) {
    const uint64_t before = app.store().revision();
    for (int frame = 0; frame < kSettleFrames; ++frame) {
      backend.begin_frame(0);
      app.draw_frame();
      backend.end_frame();
    }
    if (!app.store().busy() && app.store().revision() == before) break;
    app.store().wait_idle();
  }
}

}  // namespace

Image draw_screenshot(const AppOptions& options, float scale) {
  Settings settings;
  Application app(application_options(options, settings));
  const std::unique_ptr<HeadlessBackend> backend = make_headless_backend();
  backend->resize(first_positive(options.width, 0, kWidth),
                  first_positive(options.height, 0, kHeight), scale);
  draw_until_settled(app, *backend);
  return backend->read_pixels();
}

records::PlotSpec chart_of_panel(const AppOptions& options) {
  Application app(application_options(options, Settings()));
  const std::unique_ptr<HeadlessBackend> backend = make_headless_backend();
  backend->resize(kWidth, kHeight, 1.0f);
  draw_until_settled(app, *backend);
  for (const std::unique_ptr<Panel>& panel : app.panels()) {
    if (panel->name() == options.panel && panel->shown_plot()) return *panel->shown_plot();
  }
  throw UsageError(fmt::format(
      "--figure: expected a panel with a chart, got '{}', which shows none here; look at it with "
      "--screenshot",
      options.panel));
}

}  // namespace moonshard::viewer
