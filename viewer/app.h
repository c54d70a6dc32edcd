// The two ways to run the program: in a window, or once into a picture.
#pragma once

#include <optional>

#include "viewer/application.h"
#include "viewer/backend.h"

namespace moonshard::viewer {

struct AppOptions : ApplicationOptions {
  std::optional<Theme> theme;  ///< absent: as the last session, or dark
  int width = 0, height = 0;   ///< 0: as the last session, or 1440 x 900
  int max_frames = 0;          ///< window: close after this many frames; 0 means when the user does
  float text_scale = 0;        ///< 0: as the last session, or 1
};

/// Opens the window and returns when it is closed. Throws IoError for folders that cannot be read
/// and for a missing display.
void run_window(const AppOptions& options);

/// The window's content without a display. Nothing is remembered.
Image draw_screenshot(const AppOptions& options, float scale);

/// The chart of options.panel as its Export saves it. Throws UsageError where that panel shows
/// none.
records::PlotSpec chart_of_panel(const AppOptions& options);

}  // namespace moonshard::viewer
