// The program around the panels: menus, status bar, docking, dialogs, commands. It draws frames and
// does not depend on a window: the window, the screenshot and the tests drive the same class.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "viewer/commands.h"
#include "viewer/context.h"
#include "viewer/document.h"
#include "viewer/export_dialog.h"
#include "viewer/folder_dialog.h"
#include "viewer/panels/panel.h"
#include "viewer/settings.h"
#include "viewer/store.h"
#include "viewer/workspace.h"

namespace moonshard::viewer {

struct ApplicationOptions {
  std::vector<std::filesystem::path> folders;
  std::string point_id;                 ///< point that is selected at first; empty means none
  std::string panel;                    ///< only this panel, filling the window; empty means all
  std::vector<std::string> front = {};  ///< panels whose tabs are in front at first
  std::string filter;                   ///< of the run table, at first
  std::vector<std::filesystem::path> snapshots = {};  ///< memory snapshots outside of run folders
  Settings settings;                                  ///< where the last session left off
  std::function<void()> wake = {};  ///< called from other threads when there is something new
};

class Application {
 public:
  explicit Application(const ApplicationOptions& options);

  Document& document() { return document_; }
  Store& store() { return store_; }
  Workspace& workspace() { return workspace_; }
  const std::vector<std::unique_ptr<Panel>>& panels() const { return panels_; }

  /// Throws UsageError, with what was probably meant, where the panel, the point or the filter that
  /// was asked for is not there: a scripted picture must not silently show something else. Call it
  /// when the folders are read.
  void check_request();
  /// One frame, between the backend's begin_frame and end_frame.
  void draw_frame();
  /// Before a frame: the screen's pixels per logical pixel.
  void set_density(float density);
  /// Opens folders, or the run folders in them; errors are shown in the status bar.
  void open(const std::vector<std::filesystem::path>& folders);
  bool quit() const { return quit_; }
  /// True while frames must go on without input: something is read or just changed.
  bool busy() const;
  /// What to keep for the next session.
  Settings settings() const;

 private:
  void make_commands();
  void add_file_commands();
  void add_point_commands();
  void add_view_commands();
  void add_export_commands();
  void draw_menu();
  void draw_status_bar();
  void draw_panels(const PanelContext& context);
  void draw_single_panel(const PanelContext& context);
  void draw_dialogs();
  void take_requests();
  Panel* find_panel(std::string_view name) const;
  void show_panel(std::string_view name);
  std::string select_error() const;
  void say(const std::string& text);
  void set_theme(Theme theme) {
    settings_.theme = theme;
    style_changed_ = true;
  }
  void scale_text(float factor);
  Panel* focused_panel() const { return focused_ && focused_->open ? focused_ : nullptr; }
  std::string status_text() const;

  const ApplicationOptions options_;
  Settings settings_;
  UiContext context_;
  std::vector<std::unique_ptr<Panel>> panels_;
  CommandList commands_;
  Store store_;
  Document document_;
  Workspace workspace_;
  AppRequests requests_;
  ExportDialog export_dialog_;
  FolderDialog folder_dialog_;
  std::vector<Panel*> closed_;  // for undo, the latest last
  Panel* focused_ = nullptr;
  std::string bring_to_front_;
  std::vector<std::string> then_to_front_;  // one in a frame, behind it
  std::string notice_, status_;
  double notice_until_ = 0;
  uint64_t generation_ = 0;
  float density_ = 1.0f;
  bool style_changed_ = true, reset_layout_ = false, show_shortcuts_ = false, quit_ = false;
  bool select_checked_ = false;
};

}  // namespace moonshard::viewer
