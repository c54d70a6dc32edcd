// Charts of training curves, apart from the window.
#pragma once

#include <vector>

#include "viewer/panels/detail_charts.h"

namespace moonshard::viewer {

/// An exponential moving average; `smoothing` from 0 (none) to below 1.
std::vector<double> smoothed(const std::vector<double>& values, double smoothing);

/// A panel for each figure that some point's steps have, a line for each point.
void make_training_chart(const Workspace& workspace, const std::vector<DetailedPoint>& points,
                         double smoothing, Chart& chart);

}  // namespace moonshard::viewer
