// Owns the ImGui and ImPlot contexts with their fonts. Exactly one exists while anything is drawn;
// it is made before a backend and destroyed after it.
#pragma once

#include <filesystem>

#include <imgui.h>

#include "viewer/widgets/colors.h"

namespace moonshard::viewer {

/// What drawing code needs to know about looks. Font pointers belong to the context.
struct UiStyle {
  Theme theme = Theme::Dark;
  ImFont* bold = nullptr;  ///< the regular font where no bold one is installed
  ImFont* mono = nullptr;  ///< for logs; likewise
  const PlotColors& colors() const { return plot_colors(theme); }
};

class UiContext {
 public:
  /// Font size in pixels at density 1.
  static constexpr float kFontSize = 14.0f;

  explicit UiContext(Theme theme);
  ~UiContext();
  UiContext(const UiContext&) = delete;
  UiContext& operator=(const UiContext&) = delete;

  const UiStyle& style() const { return style_; }
  /// Changes the theme; density is the screen's pixels per logical pixel where the window has none.
  void set_theme(Theme theme, float density);

 private:
  UiStyle style_;
};

/// share/moonshard beside the running program, e.g. build/share/moonshard for
/// build/bin/moonshard-view.
std::filesystem::path share_folder();

}  // namespace moonshard::viewer
