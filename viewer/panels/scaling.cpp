// The scaling panel: how a quantity grows with a swept number, on logarithmic axes, with the fitted
// power of each line and what that means.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "runtime/analysis/scaling.h"
#include "viewer/data/overhead.h"
#include "viewer/panels/chart_points.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/panels/grouping.h"
#include "viewer/widgets/axis_names.h"
#include "viewer/widgets/choice.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxScalingSeries = 40;

struct PlaceOrder {
  bool operator()(PointRef a, PointRef b) const {
    return a.run != b.run ? a.run < b.run : a.point < b.point;
  }
};

// The analysis writes T, a length; any other size is n.
records::PlotReference curve_of(const analysis::ScalingFit& fit, const std::string& series,
                                bool of_length) {
  analysis::Curve curve = analysis::best_curve(fit);
  std::string text = analysis::exponent_text(fit);
  text += fmt::format("  {}", analysis::verdict_text(fit.verdict));
  if (!of_length) std::ranges::replace(text, 'T', 'n');
  return {std::move(text), series, std::move(curve.x), std::move(curve.y)};
}

bool says_between(const records::PlotSpec& spec) {
  return std::ranges::any_of(spec.panels, [](const records::PlotPanel& panel) {
    return std::ranges::any_of(panel.references, [](const records::PlotReference& line) {
      return line.text.ends_with("between");
    });
  });
}

class ScalingPanel final : public ChartPanel {
 public:
  ScalingPanel()
      : ChartPanel({"scaling", "Scaling", DockPlace::Charts, "scaling"},
                   ChartSubject::ShownPoints) {}

 protected:
  void draw_controls(const PanelContext& context) override {
    const std::vector<std::string> axes = context.workspace.numeric_axes();
    if (axes.empty()) return;
    std::vector<std::string> names;
    for (const analysis::Quantity& each : analysis::quantities()) names.emplace_back(each.name);
    if (choose_name("over##quantity", quantity_, names)) remake();
    if (std::ranges::find(axes, axis_) == axes.end()) {
      axis_ = axes.front();
      for (const char* usual : {"batch_size", "seq_length"}) {
        if (std::ranges::find(axes, usual) != axes.end()) axis_ = usual;
      }
      remake();
    }
    if (choose_name("##axis", axis_, axes)) remake();
    const Choice fits{
        "fits",
        "The exponent p of y ~ T^p by least squares on logarithms. The dashed curve is the "
        "best of T^p, a + bT and a + bT^2; O(1), O(T) or O(T^2) is said only where the "
        "figures decide it (docs/analysis.md)."};
    if (choose_grouping(context.workspace, nullptr, &facets_)) remake();
    if (choose_whether(fits, fits_)) remake();
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    const Workspace& workspace = context.workspace;
    if (say_no_points(workspace, chart)) return;
    chart.empty_what = "No growth to see";
    chart.empty_next =
        "It needs two or more lengths, batch sizes or the like of points that agree in all else: "
        "grid = { seq_length = {...} }.";
    const analysis::Quantity* quantity = analysis::find_quantity(quantity_);
    if (axis_.empty() || quantity == nullptr) return;
    std::vector<DetailedPoint> points;
    if (quantity->needs_detail) {
      points = shown_details(context, chart);
    } else {
      for (const PointRef ref : workspace.shown()) points.push_back({ref, nullptr});
    }
    const auto place = [&](const DetailedPoint& point) {
      return workspace.run(point.ref).option_number(point.ref.point, axis_);
    };
    std::erase_if(points, [&](const auto& point) { return !std::isfinite(place(point)); });
    std::map<PointRef, const DetailedPoint*, PlaceOrder> details;
    std::vector<PointRef> refs;
    for (const DetailedPoint& point : points) {
      details[point.ref] = &point;
      refs.push_back(point.ref);
    }
    size_t left_out = 0;
    std::vector<Facet> facets = facets_of(workspace, refs, facets_, refs.size(), left_out);
    const std::string facet_axis = facet_key(workspace, refs, facets_);
    bool two_sizes = false, any_figure = false;
    size_t alone = 0, beyond = 0;
    for (Facet& facet : facets) {
      std::ranges::stable_sort(facet.points, {}, [&](PointRef ref) {
        return place({ref, nullptr});
      });
      const std::vector<std::string> names =
          series_names(workspace, facet.points, axis_, facet_axis);
      SeriesList series;
      for (size_t i = 0; i < facet.points.size(); ++i) {
        const DetailedPoint& point = *details[facet.points[i]];
        series[names[i]].add(
            workspace, point.ref, place(point),
            quantity->read(analysis_metrics(workspace.run(point.ref), point.ref.point),
                           point.detail.get()));
      }
      any_figure = any_figure || series.any_figure();
      if (!series.any_figure()) continue;
      if (series.grows()) {
        alone += series.drop_single_places();
      } else if (facets.size() > 1) {
        alone += facet.points.size();
        continue;
      }
      if (chart.spec.panels.size() == kMaxFacets) {
        left_out += facet.points.size();
        continue;
      }
      beyond += series.keep_first(kMaxScalingSeries);
      records::PlotPanel panel;
      panel.kind = records::PlotKind::Lines;
      if (facets.size() > 1) panel.title = facet.title;
      panel.x = {axis_title(axis_), axis_unit(axis_), true};
      panel.y = {quantity_, quantity->unit, true};
      series.move_into(chart, std::move(panel));
      if (fits_) two_sizes |= add_fits(chart.spec.panels.back());
    }
    if (chart.spec.panels.empty()) {
      if (!points.empty() && !any_figure) {
        chart.empty_what = fmt::format("No point has a figure of {}", quantity_);
        chart.empty_next = "Choose another quantity; phases need profile = \"phases\" or more.";
      }
      return;
    }
    const int count = static_cast<int>(chart.spec.panels.size());
    chart.spec.title = fmt::format("{} over {}", quantity_, axis_title(axis_));
    chart.spec.columns = std::min(count, 2);
    if (count > 1) {
      chart.spec.width = 1100;
      chart.spec.height = 120 + 380 * ((count + 1) / 2);
    }
    if (two_sizes) add_note(chart, "Two sizes give no exponent: lines of two have none.");
    if (says_between(chart.spec)) {
      add_note(chart, axis_ == "seq_length" ? "Between: a mixture of O(T) and O(T^2)."
                                            : "Between: a mixture of O(n) and O(n^2).");
    }
    if (alone > 0)
      add_note(chart, fmt::format("Left out: {} points of which no other size was run.", alone));
    if (beyond > 0)
      add_note(chart,
               fmt::format("Left out: {} points of further lines; a filter chooses.", beyond));
    if (std::string_view(quantity->unit) == "ms" && quantity_ != "communication" &&
        !workspace.shows_simulated_alone())
      add_note(chart, "Times are the fastest of the measured steps.");
    note_left_out(left_out, chart);
  }

 private:
  // True where a line has two sizes only: nothing is said of how it grows.
  bool add_fits(records::PlotPanel& panel) const {
    bool two_sizes = false;
    for (const records::PlotSeries& series : panel.series) {
      std::vector<double> x, y;
      for (size_t i = 0; i < series.y.size(); ++i) {
        if (!series.y[i]) continue;
        x.push_back(series.x[i]);
        y.push_back(*series.y[i]);
      }
      const std::optional<analysis::ScalingFit> fit = analysis::fit_scaling(x, y);
      if (!fit) continue;
      const std::set<double> sizes(fit->x.begin(), fit->x.end());
      two_sizes = two_sizes || sizes.size() < 3;
      if (sizes.size() >= 3)
        panel.references.push_back(curve_of(*fit, series.name, axis_ == "seq_length"));
    }
    return two_sizes;
  }

  std::string quantity_ = "step", axis_, facets_ = kByItself;
  bool fits_ = true;
};

}  // namespace

const MakePanel make_scaling_panel = make_panel<ScalingPanel>;

}  // namespace moonshard::viewer
