// A panel: one view of the document, with its own state. The app gives it a window to draw into.
// A new panel is one source file with a make_... function declared here and one line in app.cpp.
#pragma once

#include <memory>
#include <string_view>

#include "viewer/context.h"
#include "viewer/document.h"
#include "viewer/selection.h"

namespace moonshard::viewer {

/// What a panel may see while it draws. Only the selection is there to be changed.
struct PanelContext {
  const Snapshot& snapshot;
  Selection& selection;
  const UiStyle& style;
  bool loading = false;  ///< the first reading is still under way
};

class Panel {
 public:
  virtual ~Panel() = default;
  /// Name on the command line (--panel) and in the docking layout.
  virtual std::string_view name() const = 0;
  /// Name on the screen.
  virtual const char* title() const = 0;
  /// Draws into the current ImGui window.
  virtual void draw(const PanelContext& context) = 0;

  bool open = true;
};

std::unique_ptr<Panel> make_run_table_panel();
std::unique_ptr<Panel> make_plot_spec_panel();
std::unique_ptr<Panel> make_details_panel();

}  // namespace moonshard::viewer
