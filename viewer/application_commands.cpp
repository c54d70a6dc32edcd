// Every command of the program: its name, menu and keys.

#include <fmt/format.h>

#include "viewer/application.h"
#include "viewer/render/plot_table.h"

namespace moonshard::viewer {

void Application::make_commands() {
  add_file_commands();
  add_point_commands();
  add_view_commands();
  add_export_commands();
  commands_.add({"Command palette", "Help", ImGuiMod_Ctrl | ImGuiKey_P,
                 [this] { commands_.open_palette(); }});
  commands_.add({"Shortcuts", "Help", ImGuiKey_F1, [this] { show_shortcuts_ = !show_shortcuts_; }});
}

void Application::add_file_commands() {
  const auto run_open = [this] { return workspace_.selected_run().has_value(); };
  commands_.add(
      {"Open a run folder", "File", ImGuiMod_Ctrl | ImGuiKey_O, [this] { folder_dialog_.open(); }});
  commands_.add({"Reload the folders", "File", ImGuiKey_F5, [this] { document_.reload(); }});
  commands_.add({"Cancel reading", "File", 0, [this] { document_.cancel(); },
                 [this] { return document_.loading(); }});
  commands_.add({"Close the selected folder", "File", 0,
                 [this] { document_.close(workspace_.run(*workspace_.selected_run()).path); },
                 run_open});
  commands_.add({"Quit", "File", ImGuiMod_Ctrl | ImGuiKey_Q, [this] { quit_ = true; }});
}

void Application::add_point_commands() {
  const auto any = [this] { return !workspace_.shown().empty(); };
  const auto picked = [this] { return workspace_.selected_point().has_value(); };
  commands_.add({"Next point", "Points", ImGuiMod_Alt | ImGuiKey_DownArrow,
                 [this] { workspace_.select_step(1); }, any});
  commands_.add({"Previous point", "Points", ImGuiMod_Alt | ImGuiKey_UpArrow,
                 [this] { workspace_.select_step(-1); }, any});
  commands_.add(
      {"Pin the selected point", "Points", ImGuiMod_Ctrl | ImGuiKey_D,
       [this] {
         const PointRef ref = *workspace_.selected_point();
         workspace_.set_pinned(ref, !workspace_.pinned(ref));
       },
       picked,
       [this, picked] { return picked() && workspace_.pinned(*workspace_.selected_point()); }});
  commands_.add({"Hide the selected point", "Points", ImGuiMod_Ctrl | ImGuiKey_H,
                 [this] { workspace_.set_hidden(*workspace_.selected_point(), true); }, picked});
  commands_.add({"Show hidden points", "Points", 0, [this] { workspace_.show_all_hidden(); },
                 [this] { return workspace_.num_hidden() > 0; }});
  commands_.add({"Selected point as baseline", "Points", ImGuiMod_Ctrl | ImGuiKey_B,
                 [this] {
                   const PointKey key = workspace_.selected();
                   workspace_.set_baseline({Baseline::Kind::Point, key.run, key.id, "", ""});
                 },
                 picked});
  commands_.add({"No baseline", "Points", 0, [this] { workspace_.set_baseline({}); },
                 [this] { return workspace_.baseline().kind != Baseline::Kind::None; }});
  commands_.add({"Clear the filter", "Points", 0, [this] { workspace_.set_filter(""); },
                 [this] { return !workspace_.filter_text().empty(); }});
}

void Application::add_view_commands() {
  size_t number = 0;
  for (const std::unique_ptr<Panel>& panel : panels_) {
    ++number;
    const ImGuiKeyChord chord =
        number <= 9 ? ImGuiMod_Ctrl | static_cast<int>(ImGuiKey_0 + static_cast<int>(number)) : 0;
    commands_.add({fmt::format("Show {}", panel->title()),
                   "View",
                   chord,
                   [this, name = panel->name()] { show_panel(name); },
                   {},
                   [shown = panel.get()] { return shown->open; }});
  }
  commands_.add({"Reopen the closed panel", "View", ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_T,
                 [this] {
                   const std::string name(closed_.back()->name());
                   closed_.pop_back();
                   show_panel(name);
                 },
                 [this] { return !closed_.empty(); }});
  commands_.add({"Reset the layout", "View", 0, [this] { reset_layout_ = true; }});
  commands_.add(
      {"Light theme",
       "View",
       0,
       [this] { set_theme(settings_.theme == Theme::Light ? Theme::Dark : Theme::Light); },
       {},
       [this] { return settings_.theme == Theme::Light; }});
  commands_.add({"Larger text", "View", ImGuiMod_Ctrl | ImGuiKey_Equal,
                 [this] { scale_text(settings_.text_scale * 1.125f); }});
  commands_.add({"Smaller text", "View", ImGuiMod_Ctrl | ImGuiKey_Minus,
                 [this] { scale_text(settings_.text_scale / 1.125f); }});
  commands_.add(
      {"Normal text size", "View", ImGuiMod_Ctrl | ImGuiKey_0, [this] { scale_text(1.0f); }});
}

void Application::add_export_commands() {
  const auto has_plot = [this] { return focused_panel() && focused_panel()->shown_plot(); };
  commands_.add({"Export the panel's picture", "Export", ImGuiMod_Ctrl | ImGuiKey_E,
                 [this] {
                   export_dialog_.open(
                       {*focused_panel()->shown_plot(), std::string(focused_panel()->name())});
                 },
                 has_plot});
  commands_.add(
      {"Copy the panel's data as CSV", "Export", 0,
       [this] { requests_.copy(plot_csv(*focused_panel()->shown_plot()), "the data as CSV"); },
       has_plot});
  commands_.add({"Copy the panel's data as Markdown", "Export", 0,
                 [this] {
                   requests_.copy(plot_markdown(*focused_panel()->shown_plot()),
                                  "the data as Markdown");
                 },
                 has_plot});
  commands_.add(
      {"Copy the panel as a Lua script", "Export", ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_C,
       [this] { requests_.copy(focused_panel()->script(workspace_), "a Lua script"); },
       [this] { return focused_panel() && !focused_panel()->script(workspace_).empty(); }});
}

}  // namespace moonshard::viewer
