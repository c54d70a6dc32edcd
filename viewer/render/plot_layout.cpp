#include "viewer/render/plot_layout.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

using records::PlotKind;

constexpr size_t kMaxTextBytes = 300;    // of a title or label
constexpr size_t kMaxStatusBytes = 16;   // of a status word inside the plot
constexpr size_t kMaxValueTicks = 12;    // distinct x values that become ticks themselves
constexpr size_t kMaxLineMarkers = 200;  // points of a line that still get a marker each
constexpr double kGroupWidth = 0.82;     // share of a category that its bars fill

constexpr double kMinMagnitude = 1e-100;  // below it ranges would be denormal numbers

// A value that every later computation survives: neither huge nor denormal.
double bounded(double value, bool log_scale) {
  if (std::abs(value) < kMinMagnitude) return log_scale && value > 0 ? kMinMagnitude : 0.0;
  return std::clamp(value, -kMaxMagnitude, kMaxMagnitude);
}

std::string missing_text(const records::PlotSeries& series, size_t i) {
  const std::string status = i < series.status.size() ? series.status[i] : "";
  return status.empty() || status == "ok" ? "no value" : clean_text(status, kMaxStatusBytes);
}

PreparedSeries prepare_series(const records::PlotSeries& series, const PreparedPanel& panel) {
  PreparedSeries result;
  result.name = clean_text(series.name, kMaxTextBytes);
  for (const std::string& label : series.labels) result.labels.push_back(clean_text(label, 1024));
  for (size_t i = 0; i < series.y.size(); ++i) {
    const double x = bounded(series.x[i], panel.x_log);
    if (panel.x_log && panel.categories.empty() && x <= 0) {
      // It has no place on a log axis; the left edge is set later, when the range is known.
      result.missing.push_back({x, "x <= 0", i});
    } else if (!series.y[i]) {
      result.missing.push_back({x, missing_text(series, i), i});
    } else if (panel.y_log && *series.y[i] <= 0) {
      result.missing.push_back({x, "<= 0", i});
    } else {
      result.x.push_back(x);
      result.y.push_back(bounded(*series.y[i], panel.y_log));
      result.source.push_back(i);
    }
  }
  return result;
}

std::set<double> distinct_x(const PreparedPanel& panel, size_t limit) {
  std::set<double> values;
  for (const PreparedSeries& series : panel.series) {
    for (const double x : series.x) {
      values.insert(x);
      if (values.size() > limit) return values;
    }
    for (const MissingPoint& point : series.missing) values.insert(point.x);
  }
  return values;
}

// Bars over plain numbers stand evenly, one category per distinct x.
void make_categories(PreparedPanel& panel) {
  const std::set<double> values = distinct_x(panel, SIZE_MAX);
  const std::vector<double> sorted(values.begin(), values.end());
  const auto index = [&](double x) {
    return static_cast<double>(std::lower_bound(sorted.begin(), sorted.end(), x) - sorted.begin());
  };
  for (PreparedSeries& series : panel.series) {
    for (double& x : series.x) x = index(x);
    for (MissingPoint& point : series.missing) point.x = index(point.x);
  }
  for (const double x : sorted) panel.categories.push_back(format_tick(x));
}

void place_bars(PreparedPanel& panel) {
  const auto num_series = static_cast<double>(std::max<size_t>(panel.series.size(), 1));
  // Two or fewer narrow groups would give fat slabs; the group shrinks with the number of series.
  const double group = num_series == 1 ? 0.6 : kGroupWidth;
  panel.bar_width = group / num_series;
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const double shift = (static_cast<double>(s) - (num_series - 1) / 2) * panel.bar_width;
    for (double& x : panel.series[s].x) x = std::floor(x) + shift;
    for (MissingPoint& point : panel.series[s].missing) point.x = std::floor(point.x) + shift;
  }
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
  const double least = size * 1e-9;
  if (range.size() >= least) return range;
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
  if (!panel.categories.empty()) {
    return {-0.5, static_cast<double>(panel.categories.size()) - 0.5};
  }
  const bool log_scale = panel.x_log;
  Range range{kMaxMagnitude, -kMaxMagnitude};
  const auto include = [&](double x) {
    if (log_scale && x <= 0) return;
    range.min = std::min(range.min, x);
    range.max = std::max(range.max, x);
  };
  for (const PreparedSeries& series : panel.series) {
    for (const double x : series.x) include(x);
    for (const MissingPoint& point : series.missing) include(point.x);
  }
  if (range.max < range.min) return log_scale ? Range{0.1, 10} : Range{0, 1};
  // Few values read better with air at both ends; a long curve fills its axis.
  const double share = panel.x_ticks.empty() && panel.kind == PlotKind::Lines ? 0.02 : 0.06;
  return padded(widened(range, log_scale), share, log_scale);
}

Range find_y_range(const PreparedPanel& panel) {
  Range range{kMaxMagnitude, -kMaxMagnitude};
  for (const PreparedSeries& series : panel.series) {
    for (const double y : series.y) {
      range.min = std::min(range.min, y);
      range.max = std::max(range.max, y);
    }
  }
  const bool empty = range.max < range.min;
  if (panel.y_log) {
    if (empty) return {0.1, 10};
    range = widened(range, true);
    // Bars have no natural foot on a log axis: they stand on the power of ten below the smallest.
    if (panel.kind != PlotKind::Bars) return padded(range, 0.06, true);
    range.min = std::pow(10.0, std::floor(std::log10(range.min * 0.8)));
    return range;
  }
  if (empty) return {0, 1};
  const bool near_zero = range.min >= 0 && range.min < 0.6 * range.max;
  if (panel.kind == PlotKind::Bars || near_zero) {
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

PreparedPanel prepare_panel(const records::PlotPanel& panel) {
  PreparedPanel result;
  result.kind = panel.kind;
  result.title = clean_text(panel.title, kMaxTextBytes);
  result.x_label = clean_text(with_unit(panel.x.label, panel.x.unit), kMaxTextBytes);
  result.y_label = clean_text(with_unit(panel.y.label, panel.y.unit), kMaxTextBytes);
  result.y_log = panel.y.log_scale;
  for (const std::string& name : panel.x.categories) {
    result.categories.push_back(clean_text(name, kMaxTextBytes));
  }
  // Categories and bars stand evenly: a log scale over them has no meaning.
  result.x_log = panel.x.log_scale && result.categories.empty() && panel.kind != PlotKind::Bars;
  for (const records::PlotSeries& series : panel.series) {
    result.series.push_back(prepare_series(series, result));
    const bool dense = panel.kind == PlotKind::Lines && series.y.size() > kMaxLineMarkers;
    result.markers = result.markers && !dense;
  }
  if (panel.kind == PlotKind::Bars) {
    if (result.categories.empty()) make_categories(result);
    place_bars(result);
  } else if (result.categories.empty()) {
    const std::set<double> values = distinct_x(result, kMaxValueTicks);
    if (values.size() <= kMaxValueTicks) result.x_ticks.assign(values.begin(), values.end());
  }
  result.x_range = find_x_range(result);
  result.y_range = find_y_range(result);
  for (PreparedSeries& series : result.series) {
    for (MissingPoint& point : series.missing) {
      point.x = std::clamp(point.x, result.x_range.min, result.x_range.max);
    }
  }
  return result;
}

bool same_series(const PreparedPanel& a, const PreparedPanel& b) {
  const auto same_name = [](const PreparedSeries& first, const PreparedSeries& second) {
    return first.name == second.name;
  };
  return std::equal(a.series.begin(), a.series.end(), b.series.begin(), b.series.end(), same_name);
}

}  // namespace

PreparedPlot prepare_plot(const records::PlotSpec& spec) {
  PreparedPlot plot;
  plot.title = clean_text(spec.title, kMaxTextBytes);
  plot.width = spec.width;
  plot.height = spec.height;
  for (const records::PlotPanel& panel : spec.panels) plot.panels.push_back(prepare_panel(panel));
  const auto as_first = [&](const PreparedPanel& panel) {
    return same_series(panel, plot.panels.front());
  };
  plot.shared_legend = std::all_of(plot.panels.begin(), plot.panels.end(), as_first);
  return plot;
}

Range with_room_above(const Range& range, double pixels, double above, bool log_scale) {
  // At most half the axis: on a tiny plot the data matters more than the text over it.
  const double share = std::min(above / std::max(pixels, 1.0), 0.5);
  if (log_scale) {
    return {range.min, range.min * std::pow(range.max / range.min, 1.0 / (1.0 - share))};
  }
  return {range.min, range.min + range.size() / (1.0 - share)};
}

}  // namespace moonshard::viewer
