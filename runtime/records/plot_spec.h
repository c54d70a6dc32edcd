// A plot as data: what a script makes from records and the viewer draws, in a window or to PNG.
// One spec is one picture of one or more panels, left to right.
//
// JSON form (<name>.plot.json):
//   {"schema_version": 1, "title": "…", "width": 900, "height": 520,
//    "panels": [{"kind": "bars" | "lines" | "scatter", "title": "…",
//                "x": {"label": "…", "unit": "…", "scale": "linear" | "log", "categories": ["64",
//                "128"]}, "y": {"label": "…", "unit": "…", "scale": "linear" | "log"}, "series":
//                [{"name": "none", "x": [0, 1], "y": [1.5, null],
//                            "labels": ["…"], "status": ["ok", "oom"]}]}]}
// With categories, x values are indices into them. A null y is a point without a figure (failed or
// out of memory): it is drawn as such from its status, never dropped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/records/json.h"

namespace moonshard::records {

enum class PlotKind { Bars, Lines, Scatter };

struct PlotAxis {
  std::string label;
  std::string unit;  ///< shown in brackets after the label; may be empty
  bool log_scale = false;
  std::vector<std::string> categories;  ///< x only; empty for a numeric axis
};

struct PlotSeries {
  std::string name;
  std::vector<double> x;
  std::vector<std::optional<double>> y;  ///< nullopt: no figure, see status
  std::vector<std::string> labels;       ///< hover text per point; empty or as long as y
  std::vector<std::string> status;       ///< "ok", "oom", "failed", …; empty means all ok
};

struct PlotPanel {
  PlotKind kind = PlotKind::Bars;
  std::string title;
  PlotAxis x, y;
  std::vector<PlotSeries> series;
};

struct PlotSpec {
  std::string title;
  int width = 900, height = 520;  ///< pixels at 1x
  std::vector<PlotPanel> panels;
};

/// Reads a spec; throws IoError "where: expected …, got …" for anything that cannot be drawn.
PlotSpec plot_spec_from_json(const Json& value, const std::string& where);
Json to_json(const PlotSpec& spec);

}  // namespace moonshard::records
