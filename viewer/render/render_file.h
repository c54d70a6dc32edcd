// Plot specs from files to PNG files, without a display.
#pragma once

#include <filesystem>
#include <memory>

#include "runtime/records/plot_spec.h"
#include "viewer/backend.h"
#include "viewer/context.h"

namespace moonshard::viewer {

/// Reads an untrusted spec. Throws IoError naming the file and the reason.
records::PlotSpec load_plot_spec(const std::filesystem::path& path);

/// "a/x.plot.json" -> "x.png".
std::string png_name_for(const std::filesystem::path& spec_path);

/// Draws specs one after the other; starting EGL is the slow part and happens once.
class PlotExporter {
 public:
  explicit PlotExporter(Theme theme);

  /// The figure at its own width x height, scale times enlarged.
  Image draw(const records::PlotSpec& spec, float scale);

 private:
  UiContext context_;
  std::unique_ptr<HeadlessBackend> backend_;
};

}  // namespace moonshard::viewer
