#include "viewer/application.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <imgui.h>
#include <imgui_internal.h>

#include "runtime/base/check.h"
#include "runtime/base/options.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr double kNotice_s = 5.0;

// The layout that comes with the program, all panels open: table and what belongs to a point on the
// left, charts on the right above, what explains one of them below.
void apply_default_layout(ImGuiID dock, ImVec2 size,
                          const std::vector<std::unique_ptr<Panel>>& panels) {
  ImGui::DockBuilderRemoveNode(dock);
  ImGui::DockBuilderAddNode(dock, ImGuiDockNodeFlags_DockSpace);
  ImGui::DockBuilderSetNodeSize(dock, size);
  ImGuiID left = dock, left_top = 0, right_top = 0;
  const ImGuiID right = ImGui::DockBuilderSplitNode(dock, ImGuiDir_Right, 0.49f, nullptr, &left);
  const ImGuiID left_bottom =
      ImGui::DockBuilderSplitNode(left, ImGuiDir_Down, 0.44f, nullptr, &left_top);
  const ImGuiID right_bottom =
      ImGui::DockBuilderSplitNode(right, ImGuiDir_Down, 0.48f, nullptr, &right_top);
  for (const std::unique_ptr<Panel>& panel : panels) {
    panel->open = true;
    const ImGuiID node = panel->place() == DockPlace::Table    ? left_top
                         : panel->place() == DockPlace::Side   ? left_bottom
                         : panel->place() == DockPlace::Charts ? right_top
                                                               : right_bottom;
    ImGui::DockBuilderDockWindow(panel->title(), node);
  }
  for (const ImGuiID node : {left_top, left_bottom, right_top, right_bottom}) {
    // The tab has a cross of its own, and the triangle menu only hides the tab.
    ImGui::DockBuilderGetNode(node)->SetLocalFlags(ImGuiDockNodeFlags_NoWindowMenuButton |
                                                   ImGuiDockNodeFlags_NoCloseButton);
  }
  ImGui::DockBuilderFinish(dock);
}

}  // namespace

Application::Application(const ApplicationOptions& options)
    : options_(options),
      settings_(options.settings),
      context_(options.settings.theme),
      panels_(make_all_panels()),
      store_(options.wake),
      document_(options.folders, options.wake) {
  for (const std::filesystem::path& file : options.snapshots) {
    workspace_.snapshot_files.push_back(file.string());
  }
  workspace_.select(PointKey{"", options.point_id});
  workspace_.set_filter(options.filter);
  then_to_front_ = options.front;
  for (const std::unique_ptr<Panel>& panel : panels_) {
    const auto& closed = settings_.closed_panels;
    panel->open = std::ranges::find(closed, panel->name()) == closed.end();
  }
  if (settings_.layout.empty()) {
    reset_layout_ = true;
  } else {
    ImGui::LoadIniSettingsFromMemory(settings_.layout.data(), settings_.layout.size());
  }
  for (const auto& folder : options.folders) settings_.remember(folder.string());
  make_commands();
}

bool Application::busy() const {
  return document_.loading() || store_.busy() || export_dialog_.busy() ||
         ImGui::GetTime() < notice_until_;
}

Settings Application::settings() const {
  Settings kept = settings_;
  size_t size = 0;
  const char* layout = ImGui::SaveIniSettingsToMemory(&size);
  kept.layout.assign(layout, size);
  kept.closed_panels.clear();
  for (const std::unique_ptr<Panel>& panel : panels_) {
    if (!panel->open) kept.closed_panels.emplace_back(panel->name());
  }
  return kept;
}

void Application::set_density(float density) {
  if (density == density_ && !style_changed_) return;
  density_ = density;
  style_changed_ = false;
  context_.set_theme(settings_.theme, density * settings_.text_scale);
}

void Application::scale_text(float factor) {
  settings_.text_scale = std::clamp(factor, 0.5f, 3.0f);
  style_changed_ = true;
  say(fmt::format("text size {:.0f} %", settings_.text_scale * 100));
}

void Application::say(const std::string& text) {
  notice_ = clean_text(text, 512);
  notice_until_ = ImGui::GetTime() + kNotice_s;
}

void Application::open(const std::vector<std::filesystem::path>& folders) {
  for (const std::filesystem::path& folder : folders) {
    try {
      const OpenablePaths found = find_openable({folder});
      for (const std::filesystem::path& file : found.snapshots) {
        workspace_.snapshot_files.push_back(file.string());
        show_panel("memory_snapshot");
      }
      if (found.runs.empty()) continue;
      workspace_.select_run(document_.open(found.runs));
      settings_.remember(folder.string());
    } catch (const std::exception& problem) {
      say(problem.what());
    }
  }
}

std::string Application::select_error() const {
  if (options_.point_id.empty() || workspace_.selected_point()) return "";
  std::vector<std::string> ids;
  for (const LoadedRun& loaded : workspace_.snapshot().runs) {
    for (const PointHead& point : loaded.data->points) ids.push_back(point.id);
  }
  // The beginning of an id is the likeliest mistake.
  const auto begins = [&](const std::string& id) { return id.starts_with(options_.point_id); };
  const auto found = std::ranges::find_if(ids, begins);
  const std::string near =
      found != ids.end()
          ? fmt::format("; did you mean '{}'?", *found)
          : did_you_mean(options_.point_id, ids, "; the run table shows ids as a column");
  return fmt::format("--select: expected the id of a point of the open folders, got '{}'{}",
                     options_.point_id, near);
}

void Application::check_request() {
  const auto check_panel = [&](const char* flag, const std::string& wanted) {
    if (find_panel(wanted)) return;
    std::vector<std::string> names;
    for (const std::unique_ptr<Panel>& panel : panels_) names.emplace_back(panel->name());
    fail_unknown_name(flag, wanted, names);
  };
  if (!options_.panel.empty()) check_panel("--panel", options_.panel);
  for (const std::string& name : options_.front) check_panel("--front", name);
  workspace_.update(document_.snapshot());
  if (const std::string problem = select_error(); !problem.empty()) throw UsageError(problem);
  const std::string wrong = workspace_.filter_problem();
  if (!wrong.empty()) throw UsageError("--filter: " + wrong);
}

void Application::draw_frame() {
  const std::shared_ptr<const Snapshot> snapshot = document_.snapshot();
  if (snapshot->generation != generation_) {
    generation_ = snapshot->generation;
    store_.refresh();
    workspace_.update(snapshot);
    status_ = status_text();
    // Said once, when the folders are there: a mistyped id is not silently nothing.
    if (!select_checked_ && !document_.loading() && !snapshot->runs.empty()) {
      select_checked_ = true;
      if (const std::string problem = select_error(); !problem.empty()) say(problem);
      if (options_.point_id.empty() && !workspace_.selected_point()) workspace_.select_first();
    }
  }
  const bool first_reading = document_.loading() && snapshot->generation == 0;
  const PanelContext panel_context{*snapshot,        workspace_, store_,
                                   context_.style(), requests_,  first_reading};
  if (!options_.panel.empty()) {
    draw_single_panel(panel_context);
    take_requests();
    return;
  }
  commands_.handle_shortcuts();
  draw_menu();
  draw_status_bar();
  draw_panels(panel_context);
  take_requests();
  draw_dialogs();
}

void Application::draw_single_panel(const PanelContext& context) {
  Panel* wanted = find_panel(options_.panel);
  if (!wanted) return check_request();
  ImGui::SetNextWindowPos(ImVec2(0, 0));
  ImGui::SetNextWindowSize(ImGui::GetIO().DisplaySize);
  ImGui::Begin("##panel", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoDocking |
                   ImGuiWindowFlags_NoSavedSettings | ImGuiWindowFlags_NoBringToFrontOnFocus);
  wanted->draw(context);
  ImGui::End();
}

void Application::draw_panels(const PanelContext& context) {
  const ImGuiID dock = ImGui::DockSpaceOverViewport(ImGui::GetID("dock"));
  if (std::exchange(reset_layout_, false)) {
    apply_default_layout(dock, ImGui::GetMainViewport()->WorkSize, panels_);
    bring_to_front_ = "run_table";
  }
  for (const std::unique_ptr<Panel>& panel : panels_) {
    if (!panel->open) continue;
    if (ImGui::Begin(panel->title(), &panel->open)) panel->draw(context);
    if (ImGui::IsWindowFocused(ImGuiFocusedFlags_RootAndChildWindows)) focused_ = panel.get();
    ImGui::End();
    if (!panel->open) {
      closed_.push_back(panel.get());
      say(fmt::format("closed {}; Ctrl+Shift+T brings it back", panel->title()));
    }
  }
  const Panel* front = find_panel(std::exchange(bring_to_front_, ""));
  if (front) ImGui::SetWindowFocus(front->title());
  if (!then_to_front_.empty()) {
    show_panel(then_to_front_.front());
    then_to_front_.erase(then_to_front_.begin());
  }
}

Panel* Application::find_panel(std::string_view name) const {
  const auto found = std::ranges::find(panels_, name, &Panel::name);
  return found == panels_.end() ? nullptr : found->get();
}

void Application::show_panel(std::string_view name) {
  Panel* panel = find_panel(name);
  if (!panel) return;
  panel->open = true;
  std::erase(closed_, panel);
  bring_to_front_ = name;
}

void Application::take_requests() {
  AppRequests asked = std::exchange(requests_, AppRequests());
  if (!asked.notice.empty()) say(asked.notice);
  if (asked.export_plot) export_dialog_.open(std::move(*asked.export_plot));
  for (const std::string& panel : asked.open_panels) show_panel(panel);
}

void Application::draw_dialogs() {
  const std::string notice = export_dialog_.draw(context_.style());
  if (!notice.empty()) say(notice);
  const auto chosen = folder_dialog_.draw(context_.style(), settings_.recent);
  if (!chosen.empty()) open(chosen);
  commands_.draw_palette();
  std::vector<std::pair<std::string, std::string>> others;
  for (const std::unique_ptr<Panel>& panel : panels_) {
    for (auto& line : panel->shortcuts()) others.push_back(std::move(line));
  }
  others.insert(others.end(), {{"drag in a plot", "move; wheel zooms, double click shows all"},
                               {"click in a plot", "select the point everywhere"},
                               {"click in a legend", "hide or show a series"}});
  commands_.draw_shortcuts(show_shortcuts_, others);
}

void Application::draw_menu() {
  if (!ImGui::BeginMainMenuBar()) return;
  for (const char* menu : {"File", "Points", "View", "Export", "Help"}) {
    if (!ImGui::BeginMenu(menu)) continue;
    commands_.draw_menu(menu);
    if (std::string_view(menu) == "File" && !settings_.recent.empty() &&
        ImGui::BeginMenu("Open recent")) {
      for (const std::string& folder : std::vector<std::string>(settings_.recent)) {
        if (ImGui::MenuItem(literal_label(folder, folder).c_str())) open({folder});
      }
      ImGui::EndMenu();
    }
    ImGui::EndMenu();
  }
  ImGui::EndMainMenuBar();
}

std::string Application::status_text() const {
  const Snapshot& snapshot = workspace_.snapshot();
  std::map<std::string, size_t> counts;
  size_t points = 0, problems = 0;
  for (const LoadedRun& loaded : snapshot.runs) {
    problems += loaded.data->problems.size() + !loaded.error.empty();
    points += loaded.data->points.size();
    for (const PointHead& point : loaded.data->points) ++counts[clean_text(point.status, 32)];
  }
  std::string text = fmt::format("{} folder{}, {} points", snapshot.runs.size(),
                                 snapshot.runs.size() == 1 ? "" : "s", points);
  size_t shown = 0;
  for (const auto& [status, count] : counts) {
    if (++shown > 8) break;  // a hostile folder may hold any words
    text += fmt::format("   {} {}", count, status);
  }
  if (problems > 0) text += fmt::format("   {} problem{}", problems, problems == 1 ? "" : "s");
  for (const LoadedRun& loaded : snapshot.runs) {
    const SweepProgress& progress = loaded.data->progress;
    if (progress.state != "running") continue;
    text += fmt::format("   {}: {:.0f} of {:.0f}", clean_text(loaded.data->name, 64), progress.done,
                        progress.total);
    if (std::isfinite(progress.eta_s)) text += fmt::format(", {:.0f} s left", progress.eta_s);
  }
  return text;
}

void Application::draw_status_bar() {
  if (ImGui::BeginViewportSideBar("##status", ImGui::GetMainViewport(), ImGuiDir_Down,
                                  ImGui::GetFrameHeight(),
                                  ImGuiWindowFlags_NoScrollbar | ImGuiWindowFlags_MenuBar |
                                      ImGuiWindowFlags_NoSavedSettings) &&
      ImGui::BeginMenuBar()) {
    const ImU32 muted = context_.style().colors().muted_text;
    const float em = ImGui::GetFontSize();
    show_text(status_, muted);
    if (ImGui::GetTime() < notice_until_) {
      ImGui::SameLine(0, 2 * em);
      show_text(notice_, series_color(0, context_.style().theme));
    }
    if (document_.loading()) {
      ImGui::SetCursorPosX(std::max(ImGui::GetCursorPosX(), ImGui::GetWindowWidth() - 20 * em));
      ImGui::ProgressBar(static_cast<float>(document_.progress()), ImVec2(12 * em, 0), "reading");
      if (ImGui::SmallButton("Cancel")) document_.cancel();
    } else {
      const std::string hint =
          fmt::format("baseline: {}   Ctrl+P commands   F1 keys", workspace_.baseline_text());
      const float width = ImGui::CalcTextSize(hint.c_str()).x;
      ImGui::SetCursorPosX(
          std::max(ImGui::GetCursorPosX() + em, ImGui::GetWindowWidth() - width - em));
      show_text(hint, muted);
    }
    ImGui::EndMenuBar();
  }
  ImGui::End();
}

}  // namespace moonshard::viewer
