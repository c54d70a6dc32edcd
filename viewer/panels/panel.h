// A panel: one view of the document, with its own state. The app gives it a window to draw into.
// A new panel is one source file with a maker declared here and put in order in
// panels/panel.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/records/plot_spec.h"
#include "viewer/context.h"
#include "viewer/store.h"
#include "viewer/workspace.h"

namespace moonshard::viewer {

/// A picture to be saved: the app asks where and how large.
struct ExportRequest {
  records::PlotSpec spec;
  std::string name;  ///< suggested file name without ending
};

/// What panels request of the app while they draw; carried out after the frame.
struct AppRequests {
  std::string notice;  ///< one line for the status bar
  std::optional<ExportRequest> export_plot;
  std::vector<std::string> open_panels;  ///< names of panels to open and bring to the front

  /// Text to the clipboard, with a notice.
  void copy(const std::string& text, const std::string& what);
};

/// What a panel may see while it draws. Workspace and requests are there to be changed.
struct PanelContext {
  const Snapshot& snapshot;
  Workspace& workspace;
  Store& store;
  const UiStyle& style;
  AppRequests& requests;
  bool loading = false;  ///< the first reading is still under way

  /// The point's record, as far as it is read.
  Loaded<PointDetail> detail(PointRef ref) const {
    return store.detail(workspace.run(ref).path, workspace.head(ref).id);
  }
};

/// Where a panel stands in the layout that comes with the program.
enum class DockPlace { Table, Side, Charts, Detail };

struct PanelInfo {
  std::string_view name;  ///< on the command line (--panel) and in the settings
  const char* title;      ///< on the screen
  DockPlace place;
  const char* figure = nullptr;  ///< of scripts/moonshard/plot that shows the same
};

class Panel {
 public:
  explicit Panel(const PanelInfo& info) : info_(info) {}
  virtual ~Panel() = default;
  std::string_view name() const { return info_.name; }
  const char* title() const { return info_.title; }
  DockPlace place() const { return info_.place; }
  /// Draws into the current ImGui window.
  virtual void draw(const PanelContext& context) = 0;
  /// The picture on the screen, for export; nothing when there is none.
  virtual const records::PlotSpec* shown_plot() const { return nullptr; }
  /// A Lua script that makes from the folders what is on the screen; empty when there is none.
  virtual std::string script(const Workspace& workspace) const;
  /// What keys and mouse do here, for the shortcuts page.
  virtual std::vector<std::pair<std::string, std::string>> shortcuts() const { return {}; }

  bool open = true;

 private:
  PanelInfo info_;
};

/// All panels, in the order of the View menu.
std::vector<std::unique_ptr<Panel>> make_all_panels();

// One maker per panel; panel.cpp puts them in order.
using MakePanel = std::unique_ptr<Panel> (*)();
template <class P>
std::unique_ptr<Panel> make_panel() {
  return std::make_unique<P>();
}
extern const MakePanel make_run_table_panel;
extern const MakePanel make_details_panel;
extern const MakePanel make_log_panel;
extern const MakePanel make_tables_panel;
extern const MakePanel make_progress_panel;
extern const MakePanel make_plot_spec_panel;
extern const MakePanel make_comparison_panel;
extern const MakePanel make_tradeoff_panel;
extern const MakePanel make_scaling_panel;
extern const MakePanel make_heat_map_panel;
extern const MakePanel make_memory_panel;
extern const MakePanel make_memory_timeline_panel;
extern const MakePanel make_memory_snapshot_panel;
extern const MakePanel make_phases_panel;
extern const MakePanel make_samples_panel;
extern const MakePanel make_layers_panel;
extern const MakePanel make_communication_panel;
extern const MakePanel make_privacy_panel;
extern const MakePanel make_trace_panel;
extern const MakePanel make_training_panel;
extern const MakePanel make_plan_panel;

/// For panels of the selected point's files of one kind: nothing when there are none, and the panel
/// then says so, in the words `what` and `next` where the point simply has none.
struct SelectedFiles {
  std::string folder, id;
  std::vector<std::string> names;  ///< in the point's folder
};
std::optional<SelectedFiles> selected_files(const PanelContext& context,
                                            std::vector<std::string> PointDetail::*files,
                                            const char* what, const char* next);

/// True when there is a value to show. Else fills the panel: a progress bar with a button that
/// cancels, or the reason with a button that tries again. A value that is out of date, because the
/// file can no longer be read, is shown with the reason above it.
bool show_loading(const Loaded<void>& loaded, Store& store, const ReadRequest& request,
                  const UiStyle& style);
template <class T>
bool show_loading(const Loaded<T>& loaded, Store& store, const ReadRequest& request,
                  const UiStyle& style) {
  return show_loading(Loaded<void>{loaded.value, loaded.error, loaded.loading, loaded.progress},
                      store, request, style);
}

}  // namespace moonshard::viewer
