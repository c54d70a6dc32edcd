#include "viewer/app.h"

#include <memory>
#include <mutex>

#include <imgui.h>

#include "viewer/folder_dialog.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

// ImGui needs a few frames after an event until windows, tables and plots have settled.
constexpr int kSettleFrames = 4;
constexpr double kIdleWait_s = 1.0;
constexpr double kBusyWait_s = 0.03;  // while something is read, for its progress bar
constexpr int kWidth = 1440, kHeight = 900;
// A screenshot is done when nothing is read any more; what is read may ask for more to be read.
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
  for (int frame = 0; options.max_frames == 0 || frame < options.max_frames; ++frame) {
    const bool idle = busy_frames <= 0 && options.max_frames == 0;
    app.set_density(backend->density());
    const auto before = ImGui::GetTime();
    const double wait = !idle ? 0 : app.busy() ? kBusyWait_s : kIdleWait_s;
    if (!backend->begin_frame(wait)) break;
    // A wait that ended early was ended by input or by new data.
    busy_frames = idle && ImGui::GetTime() - before < wait * 0.98 ? kSettleFrames : busy_frames - 1;
    if (ImGui::IsAnyMouseDown() || ImGui::GetIO().WantTextInput) busy_frames = kSettleFrames;
    app.open(backend->take_dropped());
    app.draw_frame();
    backend->end_frame();
    if (ImGui::GetIO().WantSaveIniSettings) remember();  // ImGui asks some seconds after a change
    if (app.quit()) break;
  }
  remember();
}

Image draw_screenshot(const AppOptions& options, float scale) {
  Settings settings;
  Application app(application_options(options, settings));
  const std::unique_ptr<HeadlessBackend> backend = make_headless_backend();
  backend->resize(first_positive(options.width, 0, kWidth),
                  first_positive(options.height, 0, kHeight), scale);
  app.set_density(1.0f);
  app.document().load_now();
  app.check_request();
  for (int round = 0; round < kMaxScreenshotRounds; ++round) {
    const uint64_t before = app.store().revision();
    for (int frame = 0; frame < kSettleFrames; ++frame) {
      backend->begin_frame(0);
      app.draw_frame();
      backend->end_frame();
    }
    if (!app.store().busy() && app.store().revision() == before) break;
    app.store().wait_idle();
  }
  return backend->read_pixels();
}

}  // namespace moonshard::viewer
