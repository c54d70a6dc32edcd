#include "viewer/render/plot_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "viewer/data/table_text.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

using records::PlotPanel;
using records::PlotSeries;

// Every digit: a table is there to be computed with.
std::string number_text(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? fmt::format("{}", *value) : "";
}

std::string axis_name(const records::PlotAxis& axis, const char* fallback) {
  return axis.label.empty() ? fallback : with_unit(axis.label, axis.unit);
}

template <class Test>
bool any_series(const records::PlotSpec& spec, Test test) {
  return std::ranges::any_of(
      spec.panels, [&](const PlotPanel& panel) { return std::ranges::any_of(panel.series, test); });
}

}  // namespace

records::CsvTable plot_table(const records::PlotSpec& spec) {
  const bool panels = spec.panels.size() > 1;
  const bool stacks = any_series(spec, [](const PlotSeries& s) { return !s.stack.empty(); });
  const bool spread = any_series(spec, [](const PlotSeries& s) { return !s.low.empty(); });
  const bool status = any_series(spec, [](const PlotSeries& s) { return !s.status.empty(); });
  const bool labels = any_series(spec, [](const PlotSeries& s) { return !s.labels.empty(); });
  records::CsvTable table;
  if (panels) table.columns.push_back("panel");
  table.columns.push_back("series");
  if (stacks) table.columns.push_back("stack");
  const PlotPanel none;
  const PlotPanel& first = spec.panels.empty() ? none : spec.panels.front();
  const bool heat = first.kind == records::PlotKind::HeatMap;
  table.columns.push_back(axis_name(first.x, "x"));
  table.columns.push_back(heat ? axis_name(first.value, "value") : axis_name(first.y, "y"));
  if (spread) table.columns.insert(table.columns.end(), {"low", "high"});
  if (status) table.columns.push_back("status");
  if (labels) table.columns.push_back("label");
  for (const PlotPanel& panel : spec.panels) {
    for (const PlotSeries& series : panel.series) {
      for (size_t i = 0; i < series.y.size(); ++i) {
        std::vector<std::string> row;
        if (panels) {
          const std::string value = heat ? axis_name(panel.value, "") : axis_name(panel.y, "");
          row.push_back(panel.title.empty() ? value : panel.title);
        }
        row.push_back(series.name);
        if (stacks) row.push_back(series.stack);
        const double x = series.x[i];
        const bool named = !panel.x.categories.empty() && x >= 0 &&
                           x < static_cast<double>(panel.x.categories.size());
        row.push_back(named ? panel.x.categories[static_cast<size_t>(x)] : number_text(x));
        row.push_back(number_text(series.y[i]));
        if (spread) {
          row.push_back(i < series.low.size() ? number_text(series.low[i]) : "");
          row.push_back(i < series.high.size() ? number_text(series.high[i]) : "");
        }
        if (status) row.push_back(i < series.status.size() ? series.status[i] : "");
        if (labels) row.push_back(i < series.labels.size() ? series.labels[i] : "");
        table.rows.push_back(std::move(row));
      }
    }
  }
  return table;
}

std::string plot_csv(const records::PlotSpec& spec) {
  return records::to_csv(plot_table(spec));
}

std::string plot_markdown(const records::PlotSpec& spec) {
  const records::CsvTable table = plot_table(spec);
  return table_markdown(table.columns, table.rows);
}

}  // namespace moonshard::viewer
