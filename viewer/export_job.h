// Saves a plot as PNG or CSV. The picture is drawn by a second copy of the program without a
// window, as scripts have it drawn: so it is the same picture, and the window goes on meanwhile.
#pragma once

#include <filesystem>
#include <future>
#include <string>

#include "runtime/records/plot_spec.h"
#include "viewer/widgets/colors.h"

namespace moonshard::viewer {

struct ExportOptions {
  std::filesystem::path file;  ///< *.png, *.csv
  int width = 900, height = 520;
  int scale = 2;
  Theme theme = Theme::Light;
};

/// What to say afterwards: where it is, or why not.
struct ExportResult {
  bool ok = false;
  std::string text;
};

/// Starts it; program is the viewer's own file (see own_program).
std::future<ExportResult> start_export(const records::PlotSpec& spec, const ExportOptions& options,
                                       const std::filesystem::path& program);

/// The running program, or MOONSHARD_VIEW where that is set (tests run inside another program).
std::filesystem::path own_program();

}  // namespace moonshard::viewer
