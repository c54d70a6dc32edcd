// moonshard-view: arguments and exit codes. 0 good, 1 error, 2 usage; errors are one line on
// stderr.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/base/check.h"
#include "viewer/app.h"
#include "viewer/panels/panel.h"
#include "viewer/readers/limited_process.h"
#include "viewer/readers/requests.h"
#include "viewer/render/png.h"
#include "viewer/render/render_file.h"
#include "viewer/widgets/format.h"

namespace {

namespace fs = std::filesystem;
namespace view = moonshard::viewer;

constexpr int kExitError = 1, kExitUsage = 2;

struct Arguments {
  std::vector<std::string> folders;
  std::vector<std::string> specs, outputs;
  std::string out_dir, screenshot, panel, point, filter, size, theme;
  float text_scale = 0;
  int scale = 0;  // 0: 2 for specs, 1 for screenshots
  int frames = 0;
};

int print_error(const std::string& text, int code) {
  // The text may quote a hostile file; it must not steer the terminal.
  std::fprintf(stderr, "moonshard-view: %s\n", view::clean_text(text).c_str());
  return code;
}

std::string panel_names() {
  std::string names;
  for (const auto& panel : view::make_all_panels()) {
    names += (names.empty() ? "" : ", ") + std::string(panel->name());
  }
  return names;
}

void declare_arguments(CLI::App& app, Arguments& arguments) {
  app.add_option("DIR", arguments.folders,
                 "run folders to show, or folders of run folders; none: choose in the window");
  CLI::Option* render = app.add_option("--render", arguments.specs,
                                       "draw plot specs (*.plot.json) to PNG, without a display");
  app.add_option("-o,--output", arguments.outputs, "PNG file for each spec, in the same order")
      ->needs(render);
  app.add_option("--out-dir", arguments.out_dir,
                 "folder for the PNG files: x.plot.json gives x.png")
      ->needs(render);
  CLI::Option* screenshot = app.add_option("--screenshot", arguments.screenshot,
                                           "draw the program's window to a PNG, without a display");
  screenshot->excludes(render)->check([](const std::string& file) {
    return file.empty() ? std::string("expected the name of a PNG file, got none") : "";
  });
  app.add_option("--panel", arguments.panel, "only this panel: " + panel_names())
      ->needs(screenshot);
  app.add_option("--select", arguments.point, "id of the point to select");
  app.add_option("--filter", arguments.filter, "what the run table shows, e.g. 'mode = ghost'");
  app.add_option("--text-scale", arguments.text_scale, "size of all text, e.g. 1.25")
      ->check(CLI::Range(0.5, 3.0))
      ->check([](const std::string& text) {  // "nan" lies in every range
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? "expected a number, got " + text
                                                              : std::string();
      });
  app.add_option("--size", arguments.size, "window size (default 1440x900, or as it was last)");
  app.add_option("--scale", arguments.scale,
                 "pixels per logical pixel, 1 to 4 (default 2 for --render, 1 for --screenshot)")
      ->check(CLI::Range(1, 4));
  app.add_option("--theme", arguments.theme, "light (default of --render) or dark (of the window)")
      ->check(CLI::IsMember({"light", "dark"}));
  app.add_option("--frames", arguments.frames, "close the window after this many frames")
      ->check(CLI::NonNegativeNumber);
  app.set_version_flag("--version", "moonshard-view " MOONSHARD_VERSION);
}

view::Theme theme_or(const std::string& name, view::Theme fallback) {
  if (name.empty()) return fallback;
  return name == "light" ? view::Theme::Light : view::Theme::Dark;
}

void read_size(const std::string& text, int& width, int& height) {
  int end = 0;
  const bool read = std::sscanf(text.c_str(), "%5dx%5d%n", &width, &height, &end) == 2;
  MS_CHECK(read && end == static_cast<int>(text.size()) && width >= 200 && height >= 150 &&
               width <= 16384 && height <= 16384,
           "--size: expected WIDTHxHEIGHT from 200x150 to 16384x16384, got '{}'; e.g. 1440x900",
           text);
}

fs::path output_for(const Arguments& arguments, size_t index) {
  const fs::path spec = arguments.specs[index];
  if (!arguments.outputs.empty()) return arguments.outputs[index];
  const fs::path folder =
      arguments.out_dir.empty() ? spec.parent_path() : fs::path(arguments.out_dir);
  return folder / view::png_name_for(spec);
}

int render_specs(const Arguments& arguments) {
  MS_CHECK(arguments.folders.empty(), "--render: expected no run folder, got '{}'; drop it",
           arguments.folders.front());
  MS_CHECK(arguments.outputs.empty() || arguments.outputs.size() == arguments.specs.size(),
           "-o: expected one file per spec ({}), got {}; or use --out-dir", arguments.specs.size(),
           arguments.outputs.size());
  view::PlotExporter exporter(theme_or(arguments.theme, view::Theme::Light));
  const float scale = static_cast<float>(arguments.scale == 0 ? 2 : arguments.scale);
  int code = 0;
  for (size_t i = 0; i < arguments.specs.size(); ++i) {
    try {  // a damaged spec does not keep the others from being drawn
      const view::Image image = exporter.draw(view::load_plot_spec(arguments.specs[i]), scale);
      view::write_png(output_for(arguments, i), image);
    } catch (const std::exception& error) {
      code = print_error(error.what(), kExitError);
    }
  }
  return code;
}

int show_folders(const Arguments& arguments) {
  MS_CHECK(!arguments.folders.empty() || arguments.screenshot.empty(),
           "--screenshot: expected a run folder to draw, got none; e.g. moonshard-view "
           "results/run_20260131_120000 --screenshot window.png");
  view::AppOptions options;
  options.folders.assign(arguments.folders.begin(), arguments.folders.end());
  if (!arguments.theme.empty()) options.theme = theme_or(arguments.theme, view::Theme::Dark);
  options.filter = arguments.filter;
  options.text_scale = arguments.text_scale;
  options.max_frames = arguments.frames;
  options.panel = arguments.panel;
  options.point_id = arguments.point;
  if (!arguments.size.empty()) read_size(arguments.size, options.width, options.height);
  if (arguments.screenshot.empty()) {
    view::run_window(options);
  } else {
    const float scale = static_cast<float>(arguments.scale == 0 ? 1 : arguments.scale);
    view::write_png(arguments.screenshot, view::draw_screenshot(options, scale));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Shows moonshard run folders in a window and draws plot specs to PNG.",
               "moonshard-view");
  Arguments arguments;
  declare_arguments(app, arguments);
  try {
    app.parse(argc, argv);
    view::start_reading_service(view::answer_read_request);  // before there are threads
    return arguments.specs.empty() ? show_folders(arguments) : render_specs(arguments);
  } catch (const CLI::Success& done) {  // --help, --version
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    return print_error(std::string(error.what()) + "; see --help", kExitUsage);
  } catch (const moonshard::UsageError& error) {
    return print_error(error.what(), kExitUsage);
  } catch (const std::exception& error) {
    return print_error(error.what(), kExitError);
  }
}
