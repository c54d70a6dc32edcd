// Plot specs from files to PNG files, without a display. PNG is encoded in memory, then written
// atomically.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "runtime/records/plot_spec.h"
#include "viewer/backend.h"
#include "viewer/context.h"

namespace moonshard::viewer {

/// Reads an untrusted spec. Throws IoError naming the file and the reason.
records::PlotSpec load_plot_spec(const std::filesystem::path& path);

/// "a/x.plot.json" -> "x.png".
std::string png_name_for(const std::filesystem::path& spec_path);

/// How much larger text is in a wide figure: on a page all figures have one width, and the text of
/// a wide one must not become too small to read.
float page_text_scale(int width);

/// Draws specs one after the other; starting EGL is the slow part and happens once.
class PlotExporter {
 public:
  explicit PlotExporter(Theme theme) : context_(theme), backend_(make_headless_backend()) {}

  /// The figure at its own width x height, scale times enlarged.
  Image draw(const records::PlotSpec& spec, float scale);

 private:
  UiContext context_;
  std::unique_ptr<HeadlessBackend> backend_;
};

std::string encode_png(const Image& image);

/// Writes the file whole or not at all. Throws IoError.
void write_png(const std::filesystem::path& path, const Image& image);

}  // namespace moonshard::viewer
