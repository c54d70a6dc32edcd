#include "viewer/app.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_internal.h>

#include "runtime/core/check.h"
#include "viewer/context.h"
#include "viewer/document.h"
#include "viewer/panels/panel.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

// ImGui needs a few frames after an event until windows, tables and plots have settled.
constexpr int kSettleFrames = 4;
constexpr double kIdleWait_s = 1.0;

class App {
 public:
  explicit App(const AppOptions& options) : options_(options), context_(options.theme) {
    panels_.push_back(make_run_table_panel());
    panels_.push_back(make_plot_spec_panel());
    panels_.push_back(make_details_panel());
    selection_.point_id = options.point_id;
  }

  UiContext& context() { return context_; }

  void draw_frame(const Document& document) {
    const std::shared_ptr<const Snapshot> snapshot = document.snapshot();
    const bool first_reading = document.loading() && snapshot->generation == 0;
    const PanelContext panel_context{*snapshot, selection_, context_.style(), first_reading};
    if (!options_.panel.empty()) {
      draw_single_panel(panel_context);
      return;
    }
    draw_menu();
    draw_status_bar(*snapshot, document.loading());
    draw_dock_space();
    for (const std::unique_ptr<Panel>& panel : panels_) {
      if (!panel->open) continue;
      if (ImGui::Begin(panel->title(), &panel->open)) panel->draw(panel_context);
      ImGui::End();
    }
    if (std::exchange(focus_table_, false)) ImGui::SetWindowFocus(panels_.front()->title());
    draw_shortcuts();
  }

  bool take_reload() { return std::exchange(reload_, false); }
  bool quit() const { return quit_; }
  void set_density(float density) {
    if (density == density_ && !theme_changed_) return;
    density_ = density;
    theme_changed_ = false;
    context_.set_theme(theme_, density);
  }

 private:
  void draw_single_panel(const PanelContext& panel_context) {
    const auto wanted = std::find_if(
        panels_.begin(), panels_.end(),
        [&](const std::unique_ptr<Panel>& panel) { return panel->name() == options_.panel; });
    MS_CHECK(wanted != panels_.end(),
             "--panel: expected run_table, plot or details, got '{}'; use one of them",
             options_.panel);
    ImGui::SetNextWindowPos(ImVec2(0, 0));
    ImGui::SetNextWindowSize(ImGui::GetIO().DisplaySize);
    ImGui::Begin("##panel", nullptr,
                 ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoDocking |
                     ImGuiWindowFlags_NoSavedSettings);
    (*wanted)->draw(panel_context);
    ImGui::End();
  }

  void draw_menu() {
    if (ImGui::Shortcut(ImGuiKey_F5, ImGuiInputFlags_RouteGlobal)) reload_ = true;
    if (ImGui::Shortcut(ImGuiMod_Ctrl | ImGuiKey_Q, ImGuiInputFlags_RouteGlobal)) quit_ = true;
    if (ImGui::Shortcut(ImGuiKey_F1, ImGuiInputFlags_RouteGlobal)) show_shortcuts_ = true;
    if (!ImGui::BeginMainMenuBar()) return;
    if (ImGui::BeginMenu("File")) {
      if (ImGui::MenuItem("Reload", "F5")) reload_ = true;
      ImGui::Separator();
      if (ImGui::MenuItem("Quit", "Ctrl+Q")) quit_ = true;
      ImGui::EndMenu();
    }
    if (ImGui::BeginMenu("View")) {
      for (const std::unique_ptr<Panel>& panel : panels_) {
        ImGui::MenuItem(panel->title(), nullptr, &panel->open);
      }
      ImGui::Separator();
      if (ImGui::MenuItem("Reset layout")) reset_layout_ = true;
      if (ImGui::MenuItem("Light theme", nullptr, theme_ == Theme::Light)) {
        theme_ = theme_ == Theme::Light ? Theme::Dark : Theme::Light;
        theme_changed_ = true;
      }
      ImGui::EndMenu();
    }
    if (ImGui::BeginMenu("Help")) {
      if (ImGui::MenuItem("Shortcuts", "F1")) show_shortcuts_ = true;
      ImGui::EndMenu();
    }
    ImGui::EndMainMenuBar();
  }

  static std::string status_text(const Snapshot& snapshot) {
    std::map<std::string, size_t> counts;
    size_t points = 0, problems = 0;
    for (const LoadedRun& loaded : snapshot.runs) {
      problems += loaded.run.problems.size() + !loaded.error.empty();
      points += loaded.run.points.size();
      for (const auto& point : loaded.run.points) ++counts[clean_text(point.status, 32)];
    }
    std::string text = fmt::format("{} run{}, {} points", snapshot.runs.size(),
                                   snapshot.runs.size() == 1 ? "" : "s", points);
    size_t shown = 0;
    for (const auto& [status, count] : counts) {
      if (++shown > 8) break;  // a hostile folder may hold any words
      text += fmt::format("   {} {}", count, status);
    }
    if (problems > 0) text += fmt::format("   {} problem{}", problems, problems == 1 ? "" : "s");
    return text;
  }

  void draw_status_bar(const Snapshot& snapshot, bool loading) {
    const float height = ImGui::GetFrameHeight();
    if (ImGui::BeginViewportSideBar("##status", ImGui::GetMainViewport(), ImGuiDir_Down, height,
                                    ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_MenuBar |
                                        ImGuiWindowFlags_NoSavedSettings)) {
      if (ImGui::BeginMenuBar()) {
        if (snapshot.generation != status_generation_) {
          status_generation_ = snapshot.generation;
          status_ = status_text(snapshot);
        }
        const ImU32 muted = plot_colors(context_.style().theme).muted_text;
        show_text(loading && snapshot.generation == 0 ? "reading ..." : status_, muted);
        const std::string hint = loading ? "reading ..." : "following   F1 shortcuts";
        const float width = ImGui::CalcTextSize(hint.c_str()).x;
        ImGui::SetCursorPosX(ImGui::GetWindowWidth() - width - ImGui::GetFontSize());
        show_text(hint, muted);
        ImGui::EndMenuBar();
      }
    }
    ImGui::End();
  }

  void draw_dock_space() {
    const ImGuiID dock = ImGui::DockSpaceOverViewport(ImGui::GetID("dock"));
    if (!reset_layout_) return;
    reset_layout_ = false;
    for (const std::unique_ptr<Panel>& panel : panels_) panel->open = true;
    ImGui::DockBuilderRemoveNode(dock);
    ImGui::DockBuilderAddNode(dock, ImGuiDockNodeFlags_DockSpace);
    ImGui::DockBuilderSetNodeSize(dock, ImGui::GetMainViewport()->WorkSize);
    // Table and plot share the top, because one is read against the other; details lie left below.
    ImGuiID left = dock;
    const ImGuiID right = ImGui::DockBuilderSplitNode(dock, ImGuiDir_Right, 0.54f, nullptr, &left);
    ImGuiID top = left;
    const ImGuiID bottom = ImGui::DockBuilderSplitNode(left, ImGuiDir_Down, 0.46f, nullptr, &top);
    for (const std::unique_ptr<Panel>& panel : panels_) {
      const bool plot = panel->name() == "plot", table = panel->name() == "run_table";
      ImGui::DockBuilderDockWindow(panel->title(), plot ? right : table ? top : bottom);
    }
    for (const ImGuiID node : {right, top, bottom}) {
      // The tab has a cross of its own, and the triangle menu only hides the tab.
      ImGui::DockBuilderGetNode(node)->SetLocalFlags(ImGuiDockNodeFlags_NoWindowMenuButton |
                                                     ImGuiDockNodeFlags_NoCloseButton);
    }
    ImGui::DockBuilderFinish(dock);
    focus_table_ = true;
  }

  void draw_shortcuts() {
    if (!show_shortcuts_) return;
    const ImVec2 center = ImGui::GetMainViewport()->GetCenter();
    ImGui::SetNextWindowPos(center, ImGuiCond_Appearing, ImVec2(0.5f, 0.5f));
    if (ImGui::Begin("Shortcuts", &show_shortcuts_,
                     ImGuiWindowFlags_AlwaysAutoResize | ImGuiWindowFlags_NoDocking |
                         ImGuiWindowFlags_NoCollapse)) {
      static constexpr const char* kLines[][2] = {
          {"F5", "read the folders again"},
          {"F1", "this list"},
          {"Ctrl+Q", "quit"},
          {"Ctrl+F", "filter the run table"},
          {"click a header", "sort; again to turn round, again for the sweep's order"},
          {"right click a header", "choose columns"},
          {"drag in a plot", "move; wheel zooms, double click shows all"},
          {"click in a legend", "hide or show a series"}};
      for (const auto& line : kLines) {
        show_bold(line[0], context_.style());
        ImGui::SameLine(12 * ImGui::GetFontSize());
        show_text(line[1]);
      }
    }
    ImGui::End();
  }

  const AppOptions options_;
  UiContext context_;
  std::vector<std::unique_ptr<Panel>> panels_;
  Selection selection_;
  Theme theme_ = options_.theme;
  float density_ = 1.0f;
  bool theme_changed_ = false, reset_layout_ = true, show_shortcuts_ = false;
  bool reload_ = false, quit_ = false, focus_table_ = false;
  std::string status_;
  uint64_t status_generation_ = 0;
};

// Opening nothing but unreadable folders is an error to tell at once, not an empty window.
void check_folders(const std::vector<std::filesystem::path>& folders) {
  for (const std::filesystem::path& folder : folders) {
    std::error_code error;
    if (std::filesystem::is_regular_file(folder / "sweep.json", error)) continue;
    records::load_run_folder(folder);  // throws with the reason
  }
}

}  // namespace

void run_window(const AppOptions& options) {
  check_folders(options.folders);
  App app(options);
  WindowOptions window;
  window.title = "moonshard - " + clean_text(options.folders.front().filename().string(), 128);
  window.width = options.width;
  window.height = options.height;
  const std::unique_ptr<Backend> backend = make_window_backend(window);
  Document document(options.folders);
  document.follow([&backend] { backend->wake(); });
  int busy_frames = kSettleFrames;
  for (int frame = 0; options.max_frames == 0 || frame < options.max_frames; ++frame) {
    const bool idle = busy_frames <= 0 && options.max_frames == 0;
    app.set_density(backend->density());
    const auto before = ImGui::GetTime();
    if (!backend->begin_frame(idle ? kIdleWait_s : 0)) break;
    // A wait that ended early was ended by input or by new data.
    busy_frames =
        idle && ImGui::GetTime() - before < kIdleWait_s * 0.98 ? kSettleFrames : busy_frames - 1;
    if (ImGui::IsAnyMouseDown() || ImGui::GetIO().WantTextInput) busy_frames = kSettleFrames;
    app.draw_frame(document);
    backend->end_frame();
    if (app.take_reload()) document.reload();
    if (app.quit()) break;
  }
}

Image draw_screenshot(const AppOptions& options, float scale) {
  check_folders(options.folders);
  App app(options);
  const std::unique_ptr<HeadlessBackend> backend = make_headless_backend();
  backend->resize(options.width, options.height, scale);
  Document document(options.folders);
  document.load_now();
  for (int frame = 0; frame < kSettleFrames; ++frame) {
    backend->begin_frame(0);
    app.draw_frame(document);
    backend->end_frame();
  }
  return backend->read_pixels();
}

}  // namespace moonshard::viewer
