// What the viewer remembers between sessions: layout, open panels, theme, text size, recent
// folders. One small file of the user's; a damaged one counts as none.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "viewer/widgets/colors.h"

namespace moonshard::viewer {

struct Settings {
  Theme theme = Theme::Dark;
  float text_scale = 1.0f;
  std::vector<std::string> recent;         ///< folders, the latest first
  std::vector<std::string> closed_panels;  ///< names of panels that are not shown
  std::string layout;                      ///< ImGui's own text; empty: the layout of the program
  int width = 0, height = 0;               ///< of the window; 0: not known

  /// Puts a folder to the front of the recent ones.
  void remember(const std::string& folder);
};

/// $XDG_CONFIG_HOME/moonshard/viewer.json, or below ~/.config; empty where neither is known.
std::filesystem::path settings_path();

Settings load_settings(const std::filesystem::path& path);
/// Never throws: a session must not end because its layout cannot be kept.
void save_settings(const Settings& settings, const std::filesystem::path& path);

}  // namespace moonshard::viewer
