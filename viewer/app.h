// The program around the panels: frame loop, docking layout, menu, status bar. A window and a
// screenshot draw the same frames.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "viewer/backend.h"
#include "viewer/widgets/colors.h"

namespace moonshard::viewer {

struct AppOptions {
  std::vector<std::filesystem::path> folders;
  Theme theme = Theme::Dark;
  int width = 1440, height = 900;
  int max_frames = 0;    ///< window: close after this many frames; 0 means when the user does
  std::string point_id;  ///< point that is selected at first; empty means none
  std::string panel;     ///< screenshot: only this panel, filling the picture; empty means all
};

/// Opens the window and returns when it is closed. Throws IoError for folders that cannot be read
/// and for a missing display.
void run_window(const AppOptions& options);

/// The window's content without a display.
Image draw_screenshot(const AppOptions& options, float scale);

}  // namespace moonshard::viewer
