// Where bars stand: categories, places within them, and the marks of those without a figure.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "viewer/render/plot_layout.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

using records::PlotKind;

constexpr double kGroupWidth = 0.82;  // share of a category that its bars fill

// Bars over plain numbers stand evenly, one category per distinct x.
void make_categories(PreparedPanel& panel) {
  const std::set<double> values = distinct_x(panel, SIZE_MAX);
  const std::vector<double> sorted(values.begin(), values.end());
  const auto index = [&](double x) {
    return static_cast<double>(std::ranges::lower_bound(sorted, x) - sorted.begin());
  };
  for (PreparedSeries& series : panel.series) {
    for (double& x : series.x) x = index(x);
    for (MissingPoint& point : series.missing) point.x = index(point.x);
  }
  for (const double x : sorted) panel.categories.push_back(format_tick(x));
}

// Series of one stack share a place in the category, stacks stand side by side.
std::vector<size_t> find_places(PreparedPanel& panel, const records::PlotPanel& spec,
                                size_t& count) {
  std::vector<size_t> places(panel.series.size());
  std::vector<std::string> names;
  for (size_t s = 0; s < places.size(); ++s) {
    const auto found = std::ranges::find(names, spec.series[s].stack);
    places[s] = static_cast<size_t>(found - names.begin());
    if (found == names.end()) names.push_back(spec.series[s].stack);
  }
  count = names.size();
  if (count > 1) {
    for (const std::string& name : names) panel.stack_names.push_back(clean_text(name, 48));
  }
  return places;
}

// A stack that failed has no figure in any of its series; it is marked once.
void merge_missing(PreparedPanel& panel) {
  std::set<double> marked;
  for (const PreparedSeries& series : panel.series) {
    for (const double x : series.x) marked.insert(x);
  }
  for (PreparedSeries& series : panel.series) {
    std::erase_if(series.missing,
                  [&](const MissingPoint& point) { return !marked.insert(point.x).second; });
  }
}

// Series by the category that they stand in. Where some are absent the others close up: a bar is as
// thick as the fullest category allows, and empty places would only make it thinner.
std::map<double, std::vector<size_t>> series_in_categories(const PreparedPanel& panel) {
  std::map<double, std::vector<size_t>> present;
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const auto add = [&](double x) {
      std::vector<size_t>& list = present[std::floor(x)];
      if (list.empty() || list.back() != s) list.push_back(s);
    };
    for (const double x : panel.series[s].x) add(x);
    for (const MissingPoint& point : panel.series[s].missing) add(point.x);
  }
  return present;
}

void place_plain_bars(PreparedPanel& panel) {
  const auto present = series_in_categories(panel);
  size_t most = 1;
  for (const auto& [category, list] : present) most = std::max(most, list.size());
  const double lone = std::min(0.72, 0.1 + 0.12 * static_cast<double>(panel.categories.size()));
  panel.bar_width = most == 1 ? lone : kGroupWidth / static_cast<double>(most);
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const auto move = [&](double& x) {
      const std::vector<size_t>& list = present.at(std::floor(x));
      const auto place = static_cast<double>(std::ranges::find(list, s) - list.begin());
      x = std::floor(x) + (place - (static_cast<double>(list.size()) - 1) / 2) * panel.bar_width;
    };
    for (double& x : panel.series[s].x) move(x);
    for (MissingPoint& point : panel.series[s].missing) move(point.x);
  }
}

}  // namespace

std::set<double> distinct_x(const PreparedPanel& panel, size_t limit) {
  std::set<double> values;
  for (const PreparedSeries& series : panel.series) {
    for (const double x : series.x) {
      values.insert(x);
      if (values.size() > limit) return values;
    }
    for (const MissingPoint& point : series.missing) {
      if (!point.no_place) values.insert(point.x);
    }
  }
  return values;
}

void place_bars(PreparedPanel& panel, const records::PlotPanel& spec) {
  if (panel.categories.empty()) make_categories(panel);
  if (panel.kind == PlotKind::Bars) return place_plain_bars(panel);
  size_t count = 0;
  const std::vector<size_t> places = find_places(panel, spec, count);
  const auto num_places = static_cast<double>(std::max<size_t>(count, 1));
  // Few single bars would be fat slabs.
  const double lone = std::min(0.6, 0.1 + 0.12 * static_cast<double>(panel.categories.size()));
  panel.bar_width = num_places == 1 ? lone : kGroupWidth / num_places;
  for (size_t s = 0; s < panel.series.size(); ++s) {
    const double shift = (static_cast<double>(places[s]) - (num_places - 1) / 2) * panel.bar_width;
    for (double& x : panel.series[s].x) x = std::floor(x) + shift;
    for (MissingPoint& point : panel.series[s].missing) {
      point.x = std::floor(point.x) + shift;
      if (!panel.stack_names.empty()) point.text = panel.stack_names[places[s]] + "  " + point.text;
    }
  }
  if (panel.kind == PlotKind::StackedBars) merge_missing(panel);
}

}  // namespace moonshard::viewer
