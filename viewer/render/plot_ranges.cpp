#include "viewer/render/plot_layout.h"

#include <algorithm>
#include <cmath>

namespace moonshard::viewer {
namespace {

using records::PlotKind;

constexpr double kMinMagnitude = 1e-100;  // below it ranges would be denormal numbers

constexpr Range kNothing{kMaxMagnitude, -kMaxMagnitude};

void include(Range& range, double value) {
  range.min = std::min(range.min, value);
  range.max = std::max(range.max, value);
}

// A range that is neither empty nor so narrow, compared with its values, that ticks could not step.
Range widened(Range range, bool log_scale) {
  const double size = std::max(std::abs(range.min), std::abs(range.max));
  if (log_scale) {
    if (range.max < range.min * 1.001) {
      range.min /= 2;
      range.max *= 2;
    }
    return range;
  }
  if (size == 0) return {-1, 1};
  if (range.size() >= size * 1e-9) return range;
  const double pad = size * 0.1;
  return {range.min - pad, range.max + pad};
}

Range padded(const Range& range, double share, bool log_scale) {
  if (log_scale) {
    const double factor = std::pow(range.max / range.min, share);
    return {range.min / factor, range.max * factor};
  }
  return {range.min - range.size() * share, range.max + range.size() * share};
}

Range find_x_range(const PreparedPanel& panel) {
  if (!panel.categories.empty()) return {-0.5, static_cast<double>(panel.categories.size()) - 0.5};
  const bool log_scale = panel.x_log;
  Range range = kNothing;
  const auto offer = [&](double x) {
    if (!std::isnan(x) && !(log_scale && x <= 0)) include(range, x);
  };
  for (const PreparedSeries& series : panel.series) {
    for (const double x : series.x) offer(x);
    for (const MissingPoint& point : series.missing) {
      if (!point.no_place) offer(point.x);
    }
  }
  for (const records::PlotBand& band : panel.bands) {
    offer(band.from);
    offer(band.to);
  }
  for (const records::PlotReference& line : panel.references) {
    for (const double x : line.x) offer(x);
  }
  if (range.max < range.min) return log_scale ? Range{0.1, 10} : Range{0, 1};
  if (panel.kind == PlotKind::StackedArea) return widened(range, log_scale);
  // Few values read better with air at both ends; a long curve fills its axis.
  const double share = panel.x_ticks.empty() && panel.kind == PlotKind::Lines ? 0.02 : 0.06;
  // Two figures against each other: both axes are amounts, from zero on.
  const bool from_zero = panel.kind == PlotKind::Scatter && !log_scale && range.min >= 0;
  if (from_zero) range.min = 0;
  Range result = padded(widened(range, log_scale), share, log_scale);
  if (from_zero) result.min = 0;
  // Texts of curves stand behind their right ends.
  const auto has_text = [](const records::PlotReference& line) {
    return line.x.size() > 1 && !line.text.empty();
  };
  if (std::ranges::any_of(panel.references, has_text)) {
    result.max = padded(result, 0.13, log_scale).max;
  }
  return result;
}

// All that must be seen of the y axis.
Range find_y_extent(const PreparedPanel& panel) {
  Range range = kNothing;
  const bool stacked = is_stacked(panel.kind);
  const auto feet = stacked ? stack_feet(panel, {}) : std::vector<std::vector<double>>();
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const PreparedSeries& series = panel.series[s];
    for (size_t i = 0; i < series.y.size(); ++i) {
      include(range, series.y[i] + (stacked ? feet[s][i] : 0));
      if (stacked) include(range, feet[s][i]);
    }
    for (const double end : series.low) {
      if (!panel.y_log || end > 0) include(range, end);
    }
    for (const double end : series.high) include(range, end);
  }
  for (const records::PlotReference& line : panel.references) {
    for (const double y : line.y) {
      if (!panel.y_log || y > 0) include(range, y);
    }
  }
  return range;
}

Range find_y_range(const PreparedPanel& panel) {
  if (panel.kind == PlotKind::HeatMap) {
    return {-0.5, std::max(0.5, static_cast<double>(panel.series.size()) - 0.5)};
  }
  Range range = find_y_extent(panel);
  const bool empty = range.max < range.min;
  if (panel.y_log) {
    if (empty) return {0.1, 10};
    range = widened(range, true);
    // Bars have no natural foot on a log axis: they stand on the power of ten below the smallest.
    if (!is_bars(panel.kind)) return padded(range, 0.06, true);
    range.min = std::pow(10.0, std::floor(std::log10(range.min * 0.8)));
    return range;
  }
  if (empty) return {0, 1};
  // From zero, unless the spec says otherwise: a cut axis blows small differences up.
  if (is_bars(panel.kind) || panel.kind == PlotKind::StackedArea || range.min >= 0) {
    if (range.min >= 0) {
      range.min = 0;
      return range.max > 0 ? range : Range{0, 1};
    }
    range.max = std::max(range.max, 0.0);
    range.min -= std::max(range.size(), std::abs(range.min) * 1e-6) * 0.06;
    return range;
  }
  return padded(widened(range, false), 0.06, false);
}

Range find_value_range(const PreparedPanel& panel) {
  Range range = kNothing;
  for (const PreparedSeries& series : panel.series) {
    for (const double value : series.y) include(range, value);
  }
  return range.max < range.min ? Range{0, 1} : widened(range, false);
}

// The spec's own ends, as far as they leave a range.
void apply_ends(Range& range, const records::PlotAxis& axis, bool log_scale) {
  Range wanted = range;
  if (axis.min) wanted.min = bounded(*axis.min, log_scale);
  if (axis.max) wanted.max = bounded(*axis.max, log_scale);
  const double largest = std::max(std::abs(wanted.min), std::abs(wanted.max));
  if (wanted.size() > largest * 1e-9 && (!log_scale || wanted.min > 0)) range = wanted;
}

}  // namespace

double bounded(double value, bool log_scale) {
  if (std::abs(value) < kMinMagnitude) return log_scale && value > 0 ? kMinMagnitude : 0.0;
  return std::clamp(value, -kMaxMagnitude, kMaxMagnitude);
}

void find_ranges(PreparedPanel& panel, const records::PlotPanel& spec) {
  panel.x_range = find_x_range(panel);
  if (panel.categories.empty()) apply_ends(panel.x_range, spec.x, panel.x_log);
  panel.y_range = find_y_range(panel);
  if (panel.kind == PlotKind::HeatMap) {
    panel.value_range = find_value_range(panel);
    apply_ends(panel.value_range, spec.value, false);
    return;
  }
  apply_ends(panel.y_range, spec.y, panel.y_log);
  panel.fixed_top = spec.y.max.has_value();
}

Range with_room_above(const Range& range, double pixels, double above, bool log_scale) {
  // At most half the axis: on a tiny plot the data matters more than the text over it.
  const double share = std::min(above / std::max(pixels, 1.0), 0.5);
  if (log_scale) {
    return {range.min, range.min * std::pow(range.max / range.min, 1.0 / (1.0 - share))};
  }
  return {range.min, range.min + range.size() / (1.0 - share)};
}

Range with_room_around(const Range& range, double pixels, double room) {
  const double share = std::min(room / std::max(pixels, 1.0), 0.3);
  const double more = range.size() / (1.0 - 2 * share) * share;
  return {range.min - more, range.max + more};
}

}  // namespace moonshard::viewer
