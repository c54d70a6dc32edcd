// A plot as data: what a script makes from records and the viewer draws, in a window or to PNG.
// One spec is one picture of one or more panels in rows and columns. docs/plots.md lists every key.
//
// JSON form (<name>.plot.json):
//   {"schema_version": 1, "title": "…", "note": "…", "width": 900, "height": 520, "columns": 2,
//    "panels": [{"kind": "bars", "title": "…",
//                "x": {"label": "…", "unit": "…", "scale": "linear" | "log",
//                      "categories": ["64", "128"]},
//                "y": {"label": "…", "unit": "…", "scale": "linear" | "log"},
//                "series": [{"name": "none", "x": [0, 1], "y": [1.5, null],
//                            "labels": ["…"], "status": ["ok", "oom"]}]}]}
// With categories, x values are indices into them. A null y is a point without a figure (failed or
// out of memory): it is drawn as such from its status, never dropped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/base/json.h"

namespace moonshard::records {

/// Heat maps: every series is one row of cells (its name is the row's), x the column, y the value.
enum class PlotKind { Bars, StackedBars, Lines, StackedArea, Scatter, HeatMap };

using MaybeNumbers = std::vector<std::optional<double>>;

struct PlotAxis {
  std::string label;
  std::string unit;  ///< shown in brackets after the label; may be empty
  bool log_scale = false;
  std::vector<std::string> categories = {};  ///< x only; empty for a numeric axis
  std::optional<double> min = {}, max = {};  ///< end of the axis where the data would not decide
};

struct PlotSeries {
  std::string name;
  std::vector<double> x;  ///< NaN (null): a point without a figure that has no place either
  MaybeNumbers y;         ///< nullopt: no figure, see status
  std::vector<std::string> labels = {};  ///< hover text per point; empty or as long as y
  std::vector<std::string> status = {};  ///< "ok", "oom", "failed", …; empty means all ok
  std::vector<std::string> texts = {};   ///< short text beside each point; empty or as long as y
  MaybeNumbers low = {}, high = {};      ///< ends of the whiskers; empty or as long as y
  std::string stack = {};                ///< stacked bars: series of one stack stand on each other
  int color = -1;                        ///< place in the palette; -1: the renderer chooses
};

/// A stretch of the x axis with a name: the phases of a step.
struct PlotBand {
  double from = 0, to = 0;
  std::string label;
};

/// A line that is no data: only y given is a level line, only x an upright one, both a curve.
struct PlotReference {
  std::string text;
  std::string series;  ///< takes the colour of the series of this name; may be empty
  std::vector<double> x, y;
};

struct PlotPanel {
  PlotKind kind = PlotKind::Bars;
  std::string title = {};
  PlotAxis x = {}, y = {};
  PlotAxis value = {};      ///< heat maps: what the colours mean
  bool horizontal = false;  ///< bars lie: categories from top to bottom, values to the right
  std::vector<PlotSeries> series = {};
  std::vector<PlotBand> bands = {};
  std::vector<PlotReference> references = {};
};

struct PlotSpec {
  std::string title;
  std::string note;               ///< small text below the picture
  int width = 900, height = 520;  ///< pixels at 1x
  int columns = 0;                ///< panels per row; 0: all in one row
  std::vector<PlotPanel> panels;
};

/// Reads a spec; throws IoError "where: expected …, got …" for anything that cannot be drawn.
PlotSpec plot_spec_from_json(const Json& value, const std::string& where);
Json to_json(const PlotSpec& spec);

}  // namespace moonshard::records
