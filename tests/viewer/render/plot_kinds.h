// One small spec of every kind, with points that failed: for tests of the reader, of the layout and
// of the pictures.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/records/plot_spec.h"

namespace moonshard::viewer {

inline records::PlotSpec kind_spec(records::PlotPanel panel) {
  records::PlotSpec spec;
  spec.width = 420;
  spec.height = 280;
  spec.panels.push_back(std::move(panel));
  return spec;
}

inline records::PlotPanel whisker_panel() {
  records::PlotPanel panel;
  panel.x = {"sequence length", "tokens", false, {"1024", "2048"}};
  panel.y = {"step time", "ms", false};
  panel.series.push_back({"none", {0, 1}, {10.0, 21.0}});
  panel.series.back().low = {9.0, 19.0};
  panel.series.back().high = {12.0, 24.0};
  panel.series.push_back({"ghost", {0, 1}, {16.0, std::nullopt}});
  panel.series.back().status = {"ok", "oom"};
  return panel;
}

/// Two stacks per category; one of the second category failed as a whole.
inline records::PlotPanel stack_panel() {
  records::PlotPanel panel;
  panel.kind = records::PlotKind::StackedBars;
  panel.x = {"batch size", "", false, {"2", "4"}};
  panel.y = {"memory", "MiB", false};
  for (const char* engine : {"ghost", "flash"}) {
    const bool fails = std::string(engine) == "ghost";
    const auto last = [&](double value) {
      return fails ? std::nullopt : std::optional<double>(value);
    };
    for (const auto& [owner, bytes] : {std::pair("parameters", 40.0), {"activations", 25.0}}) {
      records::PlotSeries series{owner, {0, 1}, {bytes, last(bytes * 1.5)}};
      series.status = {"ok", fails ? "oom" : "ok"};
      series.stack = engine;
      panel.series.push_back(series);
    }
  }
  return panel;
}

inline records::PlotPanel lying_panel() {
  records::PlotPanel panel;
  panel.horizontal = true;
  panel.x.categories = {"layers.0.attention.wq", "layers.0.feed_forward.w1", "norm"};
  panel.y = {"norm time", "ms", false};
  panel.series.push_back({"", {0, 1, 2}, {3.0, 2.0, std::nullopt}});
  panel.series.back().status = {"ok", "ok", "failed"};
  return panel;
}

inline records::PlotPanel area_panel() {
  records::PlotPanel panel;
  panel.kind = records::PlotKind::StackedArea;
  panel.x = {"time in the step", "ms", false};
  panel.y = {"memory", "MiB", false};
  panel.series.push_back({"parameters", {0, 1, 2, 3, 4}, {10.0, 10.0, 10.0, 10.0, 10.0}});
  panel.series.push_back({"activations", {0, 1, 2, 3, 4}, {0.0, 6.0, 12.0, 5.0, 0.0}});
  panel.bands = {{0, 2, "forward"}, {2, 3.9, "backward"}, {3.9, 4, "optimizer"}};
  return panel;
}

inline records::PlotPanel fit_panel() {
  records::PlotPanel panel;
  panel.kind = records::PlotKind::Lines;
  panel.x = {"sequence length", "tokens", true};
  panel.y = {"time", "ms", true};
  panel.series.push_back({"forward", {1024, 2048, 4096}, {10.0, 20.5, 41.0}});
  panel.series.push_back({"norms", {1024, 2048, 4096}, {2.0, 8.1, std::nullopt}});
  panel.series.back().status = {"ok", "ok", "timeout"};
  panel.references.push_back({"T^1.02", "forward", {1024, 4096}, {10, 41}});
  panel.references.push_back({"limit", "", {}, {60}});
  return panel;
}

inline records::PlotPanel scatter_panel() {
  records::PlotPanel panel;
  panel.kind = records::PlotKind::Scatter;
  panel.x = {"step time", "ms", false};
  panel.y = {"peak memory", "GiB", false};
  panel.series.push_back({"none", {10, 20}, {2.0, 3.0}});
  panel.series.back().texts = {"1024", "2048"};
  panel.series.push_back(
      {"ghost", {15, std::numeric_limits<double>::quiet_NaN()}, {4.0, std::nullopt}});
  panel.series.back().texts = {"1024", "2048"};
  panel.series.back().status = {"ok", "oom"};
  return panel;
}

inline records::PlotPanel heat_panel() {
  records::PlotPanel panel;
  panel.kind = records::PlotKind::HeatMap;
  panel.x = {"batch size", "", false, {"2", "4", "8"}};
  panel.y = {"accumulation", "", false};
  panel.value = {"GPU utilisation", "%", false, {}, 0.0, 100.0};
  panel.series.push_back({"1", {0, 1, 2}, {20.0, 55.0, 90.0}});
  panel.series.push_back({"2", {0, 1, 2}, {30.0, 70.0, std::nullopt}});
  panel.series.back().status = {"ok", "ok", "oom"};
  return panel;
}

struct NamedSpec {
  const char* name;
  records::PlotSpec spec;
};

inline std::vector<NamedSpec> all_kinds() {
  std::vector<NamedSpec> kinds = {{"bars_with_whiskers", kind_spec(whisker_panel())},
                                  {"stacked_bars", kind_spec(stack_panel())},
                                  {"lying_bars", kind_spec(lying_panel())},
                                  {"stacked_area", kind_spec(area_panel())},
                                  {"lines_with_fit", kind_spec(fit_panel())},
                                  {"scatter_with_texts", kind_spec(scatter_panel())},
                                  {"heat_map", kind_spec(heat_panel())}};
  records::PlotSpec grid;
  grid.title = "Rows and columns";
  grid.note = "A note below the picture.";
  grid.width = 700;
  grid.height = 520;
  grid.columns = 2;
  grid.panels = {whisker_panel(), stack_panel(), heat_panel()};
  grid.panels[0].title = "first";
  kinds.push_back({"rows_and_columns", grid});
  return kinds;
}

}  // namespace moonshard::viewer
