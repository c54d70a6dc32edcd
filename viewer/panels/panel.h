// A panel: one view of the document, with its own state. The app gives it a window to draw into.
// A new panel is one source file with a make_... function declared here and one line in
// panels/all_panels.cpp.
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
  bool open_folder = false;              ///< the folder chooser

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
};

/// Where a panel stands in the layout that comes with the program.
enum class DockPlace { Table, Side, Charts, Detail };

class Panel {
 public:
  virtual ~Panel() = default;
  /// Name on the command line (--panel) and in the settings.
  virtual std::string_view name() const = 0;
  /// Name on the screen.
  virtual const char* title() const = 0;
  virtual DockPlace place() const = 0;
  /// One sentence: what it is for. Shown over its tab and in the documentation.
  virtual const char* purpose() const = 0;
  /// Draws into the current ImGui window.
  virtual void draw(const PanelContext& context) = 0;
  /// The picture on the screen, for export; nothing when there is none.
  virtual const records::PlotSpec* shown_plot() const { return nullptr; }
  /// A Lua script that makes from the folders what is on the screen; empty when there is none.
  virtual std::string script(const Workspace&) const { return ""; }
  /// What keys and mouse do here, for the shortcuts page.
  virtual std::vector<std::pair<std::string, std::string>> shortcuts() const { return {}; }

  bool open = true;
};

/// All panels, in the order of the View menu.
std::vector<std::unique_ptr<Panel>> make_all_panels();

}  // namespace moonshard::viewer
