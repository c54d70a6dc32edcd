// moonshard-view: arguments and exit codes. 0 good, 1 error, 2 usage; errors are one line on
// stderr.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/flags.h"
#include "viewer/app.h"
#include "viewer/panels/panel.h"
#include "viewer/readers/limited_process.h"
#include "viewer/readers/requests.h"
#include "viewer/render/render_file.h"
#include "viewer/widgets/format.h"

namespace {

namespace fs = std::filesystem;
namespace view = moonshard::viewer;

constexpr int kExitError = 1, kExitUsage = 2;

struct Arguments {
  std::vector<std::string> folders;  ///< words without a flag
  std::vector<std::string> render, output, front;
  std::string out_dir, screenshot, figure, panel, point, filter, size, theme;
  double text_scale = 0;
  int64_t scale = 0;  ///< 0: 2 for specs, 1 for screenshots
  int64_t frames = 0;
  bool help = false, version = false;
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

moonshard::OptionSchema arguments_schema() {
  using A = Arguments;
  moonshard::OptionSchema s("moonshard-view");
  s.texts<A>("render", &A::render, "draw plot specs (*.plot.json) to PNG, without a display");
  s.texts<A>("output", &A::output, "PNG file for each spec, in the same order (also -o)")
      .aliases = {"o"};
  s.text<A>("out_dir", &A::out_dir, "folder for the PNG files: x.plot.json gives x.png");
  s.text<A>("screenshot", &A::screenshot, "draw the program's window to a PNG, without a display")
      .write = [](void* to, const moonshard::Json& file) {
    MS_CHECK(file != "", "--screenshot: expected the name of a PNG file, got an empty one");
    static_cast<A*>(to)->screenshot = file;
  };
  s.text<A>("figure", &A::figure,
            "save the chart of --panel to a PNG, as its Export does, without a display");
  s.text<A>("panel", &A::panel, "").doc =
      "only this panel of a screenshot, or the one whose figure is saved: " + panel_names();
  s.texts<A>("front", &A::front, "panels whose tabs are in front, e.g. --front trace layers");
  s.text<A>("select", &A::point, "id of the point to select");
  s.text<A>("filter", &A::filter, "what the run table shows, e.g. 'mode = ghost'");
  s.real<A>("text_scale", &A::text_scale, 0.5, 3, "size of all text, e.g. --text-scale 1.25");
  s.text<A>("size", &A::size, "window size (1440x900, or as it was last)");
  s.integer<A>("scale", &A::scale, 1, 4,
               "pixels per logical pixel (2 for --render and --figure, 1 for --screenshot)");
  s.choice<A>("theme", &A::theme, {"light", "dark"},
              "light is the default of --render, dark that of the window");
  s.integer<A>("frames", &A::frames, 0, 1e9, "close the window after this many frames");
  s.boolean<A>("version", &A::version, "print the version");
  s.boolean<A>("help", &A::help, "print this text").aliases = {"h"};
  return s;
}

Arguments read_arguments(const moonshard::OptionSchema& schema, const moonshard::Words& words) {
  Arguments arguments;
  try {
    moonshard::read_flags({{schema, &arguments}}, words, &arguments.folders);
    const bool draws = !arguments.render.empty();
    MS_CHECK(draws || (arguments.output.empty() && arguments.out_dir.empty()),
             "--output, --out-dir: expected --render with plot specs, got none");
    MS_CHECK(!draws || arguments.screenshot.empty(),
             "--screenshot: expected it without --render, got both");
    MS_CHECK(arguments.figure.empty() || (!draws && arguments.screenshot.empty()),
             "--figure: expected it without --render and --screenshot, got both");
    MS_CHECK(arguments.figure.empty() || !arguments.panel.empty(),
             "--figure: expected --panel beside it, got none; e.g. --panel comparison");
    MS_CHECK(arguments.panel.empty() || !arguments.screenshot.empty() || !arguments.figure.empty(),
             "--panel: expected --screenshot or --figure beside it, got none");
  } catch (const moonshard::UsageError& error) {
    throw moonshard::UsageError(std::string(error.what()) + "; see --help");
  }
  return arguments;
}

int print_help(const moonshard::OptionSchema& schema) {
  const Arguments defaults;
  std::printf(
      "usage: moonshard-view [DIR…] [FILE.pickle…] [options]\n"
      "Shows moonshard run folders in a window and draws plot specs to PNG. DIR: run folders to "
      "show,\nor folders of run folders; FILE.pickle: PyTorch memory snapshots; none: choose in "
      "the window.\n%s",
      moonshard::describe_flags(schema, &defaults).c_str());
  return 0;
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
  const fs::path spec = arguments.render[index];
  if (!arguments.output.empty()) return arguments.output[index];
  const fs::path folder =
      arguments.out_dir.empty() ? spec.parent_path() : fs::path(arguments.out_dir);
  return folder / view::png_name_for(spec);
}

int render_specs(const Arguments& arguments) {
  MS_CHECK(arguments.folders.empty(), "--render: expected no run folder, got '{}'; drop it",
           arguments.folders.front());
  MS_CHECK(arguments.output.empty() || arguments.output.size() == arguments.render.size(),
           "-o: expected one file per spec ({}), got {}; or use --out-dir", arguments.render.size(),
           arguments.output.size());
  view::PlotExporter exporter(theme_or(arguments.theme, view::Theme::Light));
  const float scale = static_cast<float>(arguments.scale == 0 ? 2 : arguments.scale);
  int code = 0;
  for (size_t i = 0; i < arguments.render.size(); ++i) {
    try {  // a damaged spec does not keep the others from being drawn
      const view::Image image = exporter.draw(view::load_plot_spec(arguments.render[i]), scale);
      view::write_png(output_for(arguments, i), image);
    } catch (const std::exception& error) {
      code = print_error(error.what(), kExitError);
    }
  }
  return code;
}

int show_folders(const Arguments& arguments) {
  MS_CHECK(!arguments.folders.empty() || (arguments.screenshot.empty() && arguments.figure.empty()),
           "{}: expected a run folder to draw, got none; e.g. moonshard-view "
           "results/run_20260131_120000 --screenshot window.png",
           arguments.figure.empty() ? "--screenshot" : "--figure");
  view::AppOptions options;
  options.folders.assign(arguments.folders.begin(), arguments.folders.end());
  if (!arguments.theme.empty()) options.theme = theme_or(arguments.theme, view::Theme::Dark);
  options.filter = arguments.filter;
  options.text_scale = static_cast<float>(arguments.text_scale);
  options.max_frames = static_cast<int>(arguments.frames);
  options.front = arguments.front;
  options.panel = arguments.panel;
  options.point_id = arguments.point;
  if (!arguments.size.empty()) read_size(arguments.size, options.width, options.height);
  if (!arguments.figure.empty()) {
    moonshard::records::PlotSpec spec = view::chart_of_panel(options);
    if (options.width > 0) spec.width = options.width;
    if (options.height > 0) spec.height = options.height;
    view::PlotExporter exporter(theme_or(arguments.theme, view::Theme::Light));
    const float scale = static_cast<float>(arguments.scale == 0 ? 2 : arguments.scale);
    view::write_png(arguments.figure, exporter.draw(spec, scale));
  } else if (arguments.screenshot.empty()) {
    view::run_window(options);
  } else {
    const float scale = static_cast<float>(arguments.scale == 0 ? 1 : arguments.scale);
    view::write_png(arguments.screenshot, view::draw_screenshot(options, scale));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const moonshard::OptionSchema schema = arguments_schema();
    const Arguments arguments = read_arguments(schema, moonshard::Words(argv + 1, argv + argc));
    if (arguments.help) return print_help(schema);
    if (arguments.version) {
      std::printf("moonshard-view %s\n", MOONSHARD_VERSION);
      return 0;
    }
    view::start_reading_service(view::answer_read_request);  // before there are threads
    return arguments.render.empty() ? show_folders(arguments) : render_specs(arguments);
  } catch (const moonshard::UsageError& error) {
    return print_error(error.what(), kExitUsage);
  } catch (const std::exception& error) {
    return print_error(error.what(), kExitError);
  }
}
