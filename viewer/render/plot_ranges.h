// Axis ranges of a prepared panel: never empty, never so narrow that ticks could not step.
#pragma once

#include "viewer/render/plot_layout.h"

namespace moonshard::viewer {

/// A value safe for every later computation: neither huge nor denormal.
double bounded(double value, bool log_scale);

/// Fills x_range, y_range, value_range and fixed_top from the series and the spec's own ends.
void find_ranges(PreparedPanel& panel, const records::PlotPanel& spec);

}  // namespace moonshard::viewer
