// The comparison panel: figures of all shown points as bars, or over a swept number as lines, as
// they are or against the baseline that the user picks.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/data/noise.h"
#include "viewer/panels/chart_points.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/panels/grouping.h"
#include "viewer/script.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxBars = 120;
constexpr size_t kMaxComparedSeries = 60;
// More bars, or more names under them, lie: names then have lines of their own.
constexpr size_t kMostUprightBars = 12, kMostUprightNames = 6, kMostUprightFacets = 2;

// Points that have something to be compared with, and what they are compared with; all points
// where nothing is left so: of a list of baselines alone each is shown.
std::vector<PointRef> compared_points(const Workspace& workspace) {
  std::set<std::pair<size_t, size_t>> asked;
  for (const PointRef ref : workspace.shown()) {
    const Overhead& overhead = workspace.overhead(ref);
    if (overhead.partner && !overhead.is_baseline) {
      asked.insert({overhead.partner->run, overhead.partner->point});
      asked.insert({ref.run, ref.point});
    }
  }
  std::vector<PointRef> points = workspace.shown();
  if (asked.empty()) return points;
  std::erase_if(points, [&](PointRef ref) { return !asked.contains({ref.run, ref.point}); });
  return points;
}

class ComparisonPanel final : public ChartPanel {
 public:
  ComparisonPanel()
      : ChartPanel({"comparison", "Comparison", DockPlace::Charts}, ChartSubject::ShownPoints) {}
  std::string script(const Workspace& workspace) const override {
    return workspace.shown().empty() ? "" : figures_script(workspace, figure_keys());
  }

 protected:
  void draw_controls(const PanelContext& context) override {
    Workspace& workspace = context.workspace;
    if (workspace.shown().empty()) return;
    draw_baseline(workspace);
    begin_choice("##what", 9.5f * ImGui::GetFontSize());
    if (ImGui::Combo("##what", &what_, "overhead\0time, memory\0one figure\0")) remake();
    if (what_ == kOneFigure && choose_figure("##figure", figure_, workspace)) remake();
    std::vector<std::string> axes = workspace.numeric_axes();
    if (std::ranges::find(axes, over_) == axes.end()) over_ = kBars;
    axes.insert(axes.begin(), kBars);
    if (axes.size() > 1 && choose_name("##over", over_, axes)) remake();
    if (choose_grouping(workspace, over_ == kBars ? &color_ : nullptr, &facets_)) remake();
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    const Workspace& workspace = context.workspace;
    if (say_no_points(workspace, chart)) return;
    const bool compares = what_ == kOverhead;
    chart.empty_what = compares ? "No point has a baseline" : "No points to compare";
    chart.empty_next = compares ? "Pick one above, or right click a row of the run table: Baseline."
                                : "None of the shown points has this figure: choose another.";
    size_t left_out = 0;
    const std::vector<PointRef> points = compares ? compared_points(workspace) : workspace.shown();
    const size_t num_alone = workspace.shown().size() - points.size();
    const std::vector<Facet> facets = facets_of(workspace, points, facets_, kMaxFacets, left_out);
    const std::vector<std::string> keys = figure_keys();
    lying_ = over_ == kBars && std::ranges::any_of(facets, [&](const Facet& facet) {
               const std::vector<std::string> labels = name_bars(workspace, facet.points).labels;
               const std::set<std::string> distinct(labels.begin(), labels.end());
               return labels.size() > kMostUprightBars || distinct.size() > kMostUprightNames;
             });
    lying_ = lying_ || (over_ == kBars && facets.size() > kMostUprightFacets);
    within_noise_ = waiting_ = false;
    num_bars_ = lines_left_out_ = 0;
    for (const Facet& facet : facets) add_facet(context, facet, keys, facets.size() > 1, chart);
    chart.waiting = waiting_;
    if (chart.spec.panels.empty()) return;
    chart.spec.title = compares ? "Cost against " + workspace.baseline_text() : "";
    chart.spec.columns = static_cast<int>(keys.size());
    note_left_out(left_out, chart);
    if (lines_left_out_ > 0) {
      add_note(chart, fmt::format("Left out: {} points of further lines; a filter chooses.",
                                  lines_left_out_));
    }
    if (num_alone > 0) {
      add_note(chart, fmt::format("Left out: {} of {} points, without a baseline or as one that "
                                  "nothing is compared with.",
                                  num_alone, workspace.shown().size()));
    }
    if (within_noise_) {
      add_note(chart, "~ within noise: the 95 % interval of the time ratio contains 1.");
    }
    if (over_ == kBars && num_bars_ > kMaxBars) {
      add_note(chart, first_points_note(kMaxBars, points.size()));
    }
    chart.spec.width = std::min(520 * chart.spec.columns + 100, 1300);
    const auto rows = static_cast<int>(chart.spec.panels.size()) / chart.spec.columns;
    chart.spec.height = lying_
                            ? 150 + 90 * rows + 24 * static_cast<int>(std::min(num_bars_, kMaxBars))
                            : 140 + 380 * rows;
  }

 private:
  static constexpr int kOverhead = 0, kPlain = 1, kOneFigure = 2;
  static constexpr const char* kBars = "bars";
  static constexpr const char* kTimeRatio = "overhead:time_ratio";

  std::vector<std::string> figure_keys() const {
    if (what_ == kPlain) return {"median_time_ms", "peak_memory_bytes"};
    if (what_ == kOneFigure) return {figure_};
    return {kTimeRatio, "overhead:memory_percent", "overhead:memory_bytes"};
  }

  void draw_baseline(Workspace& workspace) {
    const std::vector<const RunData*> runs = workspace.runs();
    const std::string now = workspace.baseline_text();
    const float em = ImGui::GetFontSize();
    begin_choice("baseline",
                 std::clamp(ImGui::CalcTextSize(now.c_str()).x + 3 * em, 13.5f * em, 22 * em));
    if (!ImGui::BeginCombo("baseline", now.c_str())) return;
    if (ImGui::Selectable("no baseline", workspace.baseline().kind == Baseline::Kind::None)) {
      workspace.set_baseline({});
    }
    std::vector<Baseline> choices = baseline_choices(runs);
    if (runs.size() > 1) choices.insert(choices.begin(), {Baseline::Kind::Sweeps, "", "", "", ""});
    for (const Baseline& choice : choices) {
      const std::string text = describe(choice, runs);
      if (ImGui::Selectable(literal_label(text, text).c_str(), choice == workspace.baseline())) {
        workspace.set_baseline(choice);
      }
    }
    if (const std::optional<PointRef> ref = workspace.selected_point()) {
      ImGui::Separator();
      if (ImGui::Selectable("the selected point, for all")) {
        workspace.set_baseline(
            {Baseline::Kind::Point, workspace.run(*ref).path, workspace.head(*ref).id, "", ""});
      }
    }
    ImGui::EndCombo();
  }

  // One row of panels: all figures of the facet's points. A facet without any figure is left out, a
  // figure that only this facet lacks has its place.
  void add_facet(const PanelContext& context, const Facet& facet,
                 const std::vector<std::string>& keys, bool several, Chart& chart) {
    const Workspace& workspace = context.workspace;
    std::vector<std::pair<SeriesList, records::PlotPanel>> row;
    bool any = false;
    std::vector<PointRef> points = facet.points;
    if (over_ == kBars) {
      const size_t room = kMaxBars - std::min(num_bars_, kMaxBars);
      num_bars_ += points.size();
      points.resize(std::min(points.size(), room));
    }
    for (const std::string& key : keys) {
      const Unit unit = figure_unit(workspace, key);
      auto& [series, panel] = row.emplace_back();
      panel.y.unit = unit.name;
      panel.y.label = figure_label(workspace, key);
      // The title names the baseline; three panels leave little room for words.
      if (key == kTimeRatio) panel.y.label = "time";
      if (key.starts_with("overhead:memory")) panel.y.label = "more memory";
      if (key == "overhead:memory_percent") panel.y.unit = "%";
      if (several && (!lying_ || row.size() == 1)) panel.title = facet.title;
      if (over_ == kBars) {
        add_bars(context, points, key, unit.factor, panel, series);
      } else {
        add_lines(workspace, points, key, unit.factor, panel, series);
      }
      // Without a text, which would stand on bars: the title says what it is.
      if (key == kTimeRatio) panel.references.push_back({"", "", {}, {1.0}});
      any = any || series.any_figure();
    }
    if (!any) return;
    std::erase_if(row, [&](auto& entry) { return !several && !entry.first.any_figure(); });
    for (auto& [series, panel] : row) series.move_into(chart, std::move(panel));
  }

  struct BarNames {
    std::vector<std::string> colors, labels;  ///< one per point
  };

  // Colours are one option (engine, way to shard), the others name the groups of bars.
  BarNames name_bars(const Workspace& workspace, const std::vector<PointRef>& points) const {
    Coloring coloring = color_points(workspace, points, color_);
    const std::string facet = facet_key(workspace, workspace.shown(), facets_);
    std::vector<std::string> without = coloring.axes;
    without.push_back(facet);
    BarNames names;
    names.labels =
        labels_without(workspace, points, without, !coloring.by_run && facet != kByRun, false);
    // Where nothing but the colour differs, its names stand at the bars.
    const std::set<std::string> distinct(names.labels.begin(), names.labels.end());
    if (distinct.size() < 2) names.labels = coloring.names;
    names.colors = std::move(coloring.names);
    return names;
  }

  void add_bars(const PanelContext& context, const std::vector<PointRef>& points,
                const std::string& key, double factor, records::PlotPanel& panel,
                SeriesList& series) {
    const Workspace& workspace = context.workspace;
    panel.kind = records::PlotKind::Bars;
    panel.horizontal = lying_;
    const BarNames bars = name_bars(workspace, points);
    for (size_t i = 0; i < points.size(); ++i) {
      std::vector<std::string>& names = panel.x.categories;
      const auto found = std::ranges::find(names, bars.labels[i]);
      const auto place = static_cast<double>(found - names.begin());
      if (found == names.end()) names.push_back(bars.labels[i]);
      SeriesBuilder& builder = series[bars.colors[i]];
      builder.add(workspace, points[i], place, figure_of(workspace, points[i], key) * factor);
      if (key == kTimeRatio) add_noise(context, points[i], builder);
    }
  }

  // Whiskers and verdict of a time ratio, as soon as both points' steps are read.
  void add_noise(const PanelContext& context, PointRef ref, SeriesBuilder& bars) {
    records::PlotSeries& series = bars.series;
    std::optional<Interval> interval;
    const Overhead& overhead = context.workspace.overhead(ref);
    if (series.y.back() && overhead.baseline && !overhead.is_baseline) {
      interval = interval_of(context, ref, *overhead.baseline);
    }
    series.low.push_back(interval ? figure(interval->low) : std::nullopt);
    series.high.push_back(interval ? figure(interval->high) : std::nullopt);
    const bool noise = interval && interval->contains(1);
    series.texts.push_back(noise ? "~" : "");
    if (interval) {
      series.labels.back() +=
          fmt::format(": {:.3f} to {:.3f} of the baseline's time in 95 % of resamples{}",
                      interval->low, interval->high, noise ? ", within noise" : "");
    }
    within_noise_ = within_noise_ || noise;
  }

  std::optional<Interval> interval_of(const PanelContext& context, PointRef of, PointRef to) {
    const Loaded<PointDetail> own = context.detail(of), other = context.detail(to);
    for (const Loaded<PointDetail>* loaded : {&own, &other}) {
      waiting_ = waiting_ || (loaded->loading && !loaded->value);
    }
    if (!own.value || !other.value) return std::nullopt;
    Known& known = intervals_[{context.workspace.key_of(of), context.workspace.key_of(to)}];
    if (known.of != own.value || known.to != other.value) {
      known = {own.value, other.value,
               ratio_interval(step_samples(*own.value), step_samples(*other.value))};
    }
    return known.interval;
  }

  void add_lines(const Workspace& workspace, std::vector<PointRef> points, const std::string& key,
                 double factor, records::PlotPanel& panel, SeriesList& series) {
    panel.kind = records::PlotKind::Lines;
    panel.x = {axis_title(over_), axis_unit(over_), true};
    const auto place = [&](PointRef ref) {
      return workspace.run(ref).option_number(ref.point, over_);
    };
    std::erase_if(points, [&](PointRef ref) { return !std::isfinite(place(ref)); });
    std::ranges::stable_sort(points, {}, place);
    const std::vector<std::string> names =
        series_names(workspace, points, over_, facet_key(workspace, workspace.shown(), facets_));
    for (size_t i = 0; i < points.size(); ++i) {
      series[names[i]].add(workspace, points[i], place(points[i]),
                           figure_of(workspace, points[i], key) * factor);
    }
    lines_left_out_ = std::max(lines_left_out_, series.keep_first(kMaxComparedSeries));
  }

  struct Known {
    std::shared_ptr<const PointDetail> of, to;
    std::optional<Interval> interval;
  };

  int what_ = kOverhead;
  std::string figure_ = "tokens_per_s", over_ = kBars, color_ = kByItself, facets_ = kByItself;
  std::map<std::pair<PointKey, PointKey>, Known> intervals_;
  bool lying_ = false, within_noise_ = false, waiting_ = false;
  size_t num_bars_ = 0, lines_left_out_ = 0;
};

}  // namespace

const MakePanel make_comparison_panel = make_panel<ComparisonPanel>;

}  // namespace moonshard::viewer
