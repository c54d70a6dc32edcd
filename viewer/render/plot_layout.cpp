#include "viewer/render/plot_layout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "viewer/widgets/colors.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

using records::PlotKind;

constexpr size_t kMaxTextBytes = 300;   // of a title or label
constexpr size_t kMaxStatusBytes = 16;  // of a status word inside the plot
constexpr size_t kMaxValueTicks = 12;   // distinct x values that become ticks themselves
constexpr size_t kMaxLineMarkers = 60;  // points of a line that still get a marker each
constexpr size_t kMostOwnLegends = 3, kMostSharedNames = 14;
constexpr double kInvisibleShare = 0.002;  // of an axis: about a pixel; a legend does not name it

std::string cleaned(const std::string& text) {
  return clean_text(text, kMaxTextBytes);
}

std::string missing_text(const records::PlotSeries& series, size_t i) {
  const std::string status = i < series.status.size() ? series.status[i] : "";
  return status.empty() || status == "ok" ? "no value" : clean_text(status, kMaxStatusBytes);
}

void add_whiskers(const records::PlotSeries& series, size_t i, PreparedSeries& result) {
  const double y = result.y.back();
  const auto end = [&](const records::MaybeNumbers& ends) {
    return i < ends.size() && ends[i] ? bounded(*ends[i], false) : y;
  };
  result.low.push_back(std::min(y, end(series.low)));
  result.high.push_back(std::max(y, end(series.high)));
}

PreparedSeries prepare_series(const records::PlotSeries& series, const PreparedPanel& panel) {
  PreparedSeries result;
  result.name = cleaned(series.name);
  for (const std::string& label : series.labels) result.labels.push_back(clean_text(label, 1024));
  for (const std::string& text : series.texts) result.texts.push_back(clean_text(text, 48));
  const bool whiskers = !series.low.empty() || !series.high.empty();
  for (size_t i = 0; i < series.y.size(); ++i) {
    const double x = bounded(series.x[i], panel.x_log);
    if (std::isnan(series.x[i])) {
      result.missing.push_back({0, missing_text(series, i), i, true});
    } else if (panel.x_log && panel.categories.empty() && x <= 0) {
      // It has no place on a log axis; the left edge is set later, when the range is known.
      result.missing.push_back({x, "x <= 0", i});
    } else if (!series.y[i] && panel.kind != PlotKind::StackedArea) {
      result.missing.push_back({x, missing_text(series, i), i});
    } else if (panel.y_log && *series.y[i] <= 0) {
      result.missing.push_back({x, "<= 0", i});
    } else {
      result.x.push_back(x);
      result.y.push_back(bounded(series.y[i].value_or(0.0), panel.y_log));
      result.source.push_back(i);
      if (whiskers) add_whiskers(series, i, result);
    }
  }
  return result;
}

void copy_guides(const records::PlotPanel& spec, PreparedPanel& panel) {
  for (records::PlotBand band : spec.bands) {
    band.from = bounded(band.from, panel.x_log);
    band.to = bounded(band.to, panel.x_log);
    band.label = cleaned(band.label);
    if (!panel.x_log || band.from > 0) panel.bands.push_back(std::move(band));
  }
  for (records::PlotReference line : spec.references) {
    line.text = cleaned(line.text);
    line.series = cleaned(line.series);
    const auto drawable = [](std::vector<double>& values, bool log_scale) {
      for (double& value : values) value = bounded(value, log_scale);
      return !log_scale || std::ranges::all_of(values, [](double value) { return value > 0; });
    };
    const bool x = drawable(line.x, panel.x_log), y = drawable(line.y, panel.y_log);
    if (x && y) panel.references.push_back(std::move(line));
  }
}

PreparedPanel prepare_panel(const records::PlotPanel& panel) {
  PreparedPanel result;
  result.kind = panel.kind;
  result.title = cleaned(panel.title);
  result.x_label = cleaned(with_unit(panel.x.label, panel.x.unit));
  result.y_label = cleaned(with_unit(panel.y.label, panel.y.unit));
  result.value_label = cleaned(with_unit(panel.value.label, panel.value.unit));
  const bool heat_map = panel.kind == PlotKind::HeatMap;
  // Categories, bars and cells stand evenly, and parts of a stack add up only on a linear scale.
  result.y_log = panel.y.log_scale && !is_stacked(panel.kind) && !heat_map;
  for (const std::string& name : panel.x.categories) result.categories.push_back(cleaned(name));
  result.x_log = panel.x.log_scale && result.categories.empty() && !is_bars(panel.kind);
  const bool dots = panel.kind == PlotKind::Scatter && !result.categories.empty();
  result.horizontal = panel.horizontal && (is_bars(panel.kind) || dots);
  for (const records::PlotSeries& series : panel.series) {
    result.series.push_back(prepare_series(series, result));
    const bool dense = panel.kind == PlotKind::Lines && series.y.size() > kMaxLineMarkers;
    result.markers = result.markers && !dense;
  }
  if (is_bars(panel.kind)) {
    place_bars(result, panel);
  } else if (result.categories.empty() && panel.kind == PlotKind::Lines) {
    const std::set<double> values = distinct_x(result, kMaxValueTicks);
    if (values.size() <= kMaxValueTicks) result.x_ticks.assign(values.begin(), values.end());
  }
  copy_guides(panel, result);
  find_ranges(result, panel);
  for (PreparedSeries& series : result.series) {
    for (MissingPoint& point : series.missing) {
      point.x = std::clamp(point.x, result.x_range.min, result.x_range.max);
    }
  }
  return result;
}

// Maps of one figure beside each other are compared: equal colours mean equal values.
void share_heat_scales(const records::PlotSpec& spec, PreparedPlot& plot) {
  std::map<std::string, Range> ranges;
  const auto shares = [&](size_t p) {
    const records::PlotAxis& value = spec.panels[p].value;
    return plot.panels[p].kind == PlotKind::HeatMap && !value.min && !value.max &&
           !all_values(plot.panels[p]).empty();
  };
  for (size_t p = 0; p < plot.panels.size(); ++p) {
    if (!shares(p)) continue;
    const Range& own = plot.panels[p].value_range;
    Range& common = ranges.try_emplace(plot.panels[p].value_label, own).first->second;
    common = {std::min(common.min, own.min), std::max(common.max, own.max)};
  }
  for (size_t p = 0; p < plot.panels.size(); ++p) {
    if (shares(p)) plot.panels[p].value_range = ranges[plot.panels[p].value_label];
  }
}

// Panels that have names in common, directly or through others, are of one group.
std::vector<size_t> name_groups(const PreparedPlot& plot) {
  std::vector<size_t> group(plot.panels.size());
  std::map<std::string, size_t> group_of_name;
  for (size_t p = 0; p < plot.panels.size(); ++p) {
    group[p] = p;
    for (const PreparedSeries& series : plot.panels[p].series) {
      const size_t other = group_of_name.try_emplace(series.name, group[p]).first->second;
      if (other == group[p]) continue;
      const size_t old = group[p];
      std::ranges::replace(group, old, other);
      for (auto& [name, known] : group_of_name)
        if (known == old) known = other;
    }
  }
  return group;
}

// One colour per name: the name's own, what the spec asks for, or a free one. Two names that share
// a colour elsewhere (an engine and a way to shard) never do so in one legend; names of one engine
// may.
void choose_colors(const records::PlotSpec& spec, PreparedPlot& plot) {
  struct Palette {
    std::map<std::string, size_t> chosen;
    std::set<size_t> taken;
    std::map<size_t, std::string> owners;
    size_t next = 0;
  };
  // Few panels without a common name have a legend each; many may have to share one.
  std::vector<size_t> group(plot.panels.size(), 0);
  if (plot.panels.size() <= kMostOwnLegends) group = name_groups(plot);
  std::vector<Palette> palettes(std::max<size_t>(plot.panels.size(), 1));
  const auto each = [&](const auto& visit) {
    for (size_t p = 0; p < plot.panels.size(); ++p) {
      if (plot.panels[p].kind == PlotKind::HeatMap) continue;
      for (size_t s = 0; s < plot.panels[p].series.size(); ++s) {
        visit(palettes[group[p]], plot.panels[p].series[s], spec.panels[p].series[s].color);
      }
    }
  };
  each([&](Palette& palette, PreparedSeries& series, int) {
    const std::optional<size_t> own = named_series_color(series.name);
    if (!own) return;
    const std::string& owner = palette.owners.try_emplace(*own, series.name).first->second;
    if (owner != series.name && !same_named_color(owner, series.name)) return;
    palette.taken.insert(palette.chosen.try_emplace(series.name, *own).first->second);
  });
  each([&](Palette& palette, PreparedSeries& series, int asked) {
    if (asked < 0 || palette.chosen.contains(series.name)) return;
    const size_t color = static_cast<size_t>(asked) % kNumSeriesColors;
    if (palette.taken.insert(color).second) palette.chosen[series.name] = color;
  });
  each([&](Palette& palette, PreparedSeries& series, int) {
    const auto [found, added] = palette.chosen.try_emplace(series.name, 0);
    if (added) {
      while (palette.taken.contains(palette.next) && palette.taken.size() < kNumSeriesColors)
        ++palette.next;
      palette.taken.insert(palette.next);
      found->second = palette.next++;
    }
    series.color = found->second;
  });
}

void add_to_legend(const PreparedPanel& panel, Legend& legend) {
  if (panel.kind == PlotKind::HeatMap) return;
  legend.kind = panel.kind;
  legend.markers = panel.markers;
  const double invisible = is_stacked(panel.kind) ? kInvisibleShare * panel.y_range.max : 0;
  const auto known = [&](const PreparedSeries& series) {
    return std::ranges::find(legend.entries, series.name, &LegendEntry::name) !=
           legend.entries.end();
  };
  // Names of a panel that shares none stand behind the others.
  size_t next = std::ranges::any_of(panel.series, known) ? 0 : legend.entries.size();
  // a name that is new stands after the one before it in its own panel
  for (const PreparedSeries& series : panel.series) {
    const auto seen = [&](double y) { return std::abs(y) > invisible; };
    if (invisible > 0 && std::ranges::none_of(series.y, seen)) continue;
    const auto same = [&](const LegendEntry& entry) { return entry.name == series.name; };
    const auto found = std::ranges::find_if(legend.entries, same);
    if (found == legend.entries.end()) {
      legend.entries.insert(legend.entries.begin() + static_cast<long>(next),
                            {series.name, series.color});
    } else {
      next = static_cast<size_t>(found - legend.entries.begin());
    }
    ++next;
  }
}

// Most names of the smaller of the two are in both.
bool about_the_same(const Legend& a, const Legend& b) {
  std::set<std::string> names;
  for (const LegendEntry& entry : a.entries) names.insert(entry.name);
  size_t common = 0;
  for (const LegendEntry& entry : b.entries) common += names.contains(entry.name);
  return a.kind == b.kind && 2 * common > std::min(a.entries.size(), b.entries.size());
}

void drop_nameless(Legend& legend) {
  if (legend.entries.size() == 1 && legend.entries[0].name.empty()) legend.entries.clear();
}

void choose_legends(PreparedPlot& plot) {
  plot.shared_legend = true;
  for (PreparedPanel& panel : plot.panels) {
    add_to_legend(panel, panel.legend);
    drop_nameless(panel.legend);
    if (!plot.legend.entries.empty() && !about_the_same(plot.legend, panel.legend)) {
      plot.shared_legend = false;
    }
    add_to_legend(panel, plot.legend);
  }
  drop_nameless(plot.legend);
  // Many facets with a legend each would be more legend than picture.
  const auto same_kind = [&](const PreparedPanel& panel) { return panel.kind == plot.legend.kind; };
  if (plot.panels.size() > kMostOwnLegends && plot.legend.entries.size() <= kMostSharedNames &&
      std::ranges::all_of(plot.panels, same_kind)) {
    plot.shared_legend = true;
  }
}

}  // namespace

PreparedPlot prepare_plot(const records::PlotSpec& spec) {
  PreparedPlot plot;
  plot.title = cleaned(spec.title);
  plot.note = clean_text(spec.note, 1000);
  for (const records::PlotPanel& panel : spec.panels) plot.panels.push_back(prepare_panel(panel));
  const size_t asked = spec.columns > 0 ? static_cast<size_t>(spec.columns) : plot.panels.size();
  plot.columns = std::clamp<size_t>(asked, 1, std::max<size_t>(plot.panels.size(), 1));
  share_heat_scales(spec, plot);
  choose_colors(spec, plot);
  choose_legends(plot);
  return plot;
}

std::vector<std::vector<double>> stack_feet(const PreparedPanel& panel, const HiddenNames& hidden) {
  struct Ends {
    double up = 0, down = 0;  // positive parts grow upwards, negative ones downwards
  };
  std::map<double, Ends> ends;
  // An area may step straight up: two points at one x, told apart by their index.
  const bool area = panel.kind == PlotKind::StackedArea;
  std::vector<std::vector<double>> feet;
  for (const PreparedSeries& series : panel.series) {
    feet.emplace_back(series.x.size(), 0.0);
    if (hidden.contains(series.name)) continue;
    for (size_t i = 0; i < series.x.size(); ++i) {
      Ends& at = ends[area ? static_cast<double>(i) : series.x[i]];
      double& end = series.y[i] < 0 ? at.down : at.up;
      feet.back()[i] = end;
      end = std::clamp(end + series.y[i], -kMaxMagnitude, kMaxMagnitude);
    }
  }
  return feet;
}

std::vector<double> all_values(const PreparedPanel& panel) {
  std::vector<double> values;
  for (const PreparedSeries& series : panel.series) {
    values.insert(values.end(), series.y.begin(), series.y.end());
  }
  return values;
}

std::vector<MarkedStack> marked_stacks(const PreparedPanel& panel,
                                       const std::vector<PanelHit>& hits,
                                       const HiddenNames& hidden) {
  const auto feet = stack_feet(panel, hidden);
  std::map<double, MarkedStack> stacks;
  for (const PanelHit& hit : hits) {
    if (hit.series >= panel.series.size()) continue;
    const PreparedSeries& series = panel.series[hit.series];
    const auto found = std::ranges::find(series.source, hit.source);
    if (found == series.source.end() || hidden.contains(series.name)) continue;
    const auto i = static_cast<size_t>(found - series.source.begin());
    const double foot = feet[hit.series][i], end = foot + series.y[i];
    MarkedStack& stack =
        stacks.try_emplace(series.x[i], MarkedStack{series.x[i], foot, foot}).first->second;
    stack.low = std::min({stack.low, foot, end});
    stack.high = std::max({stack.high, foot, end});
  }
  std::vector<MarkedStack> list;
  for (const auto& [place, stack] : stacks) list.push_back(stack);
  return list;
}

}  // namespace moonshard::viewer
