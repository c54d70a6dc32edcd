// The samples panel: how the step times of each shown point are spread, a dot for every step.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "runtime/analysis/rows.h"
#include "viewer/panels/chart_points.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/script.h"
#include "viewer/widgets/choice.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxDots = 400;  // per point; more merge into a blot

struct Spread {
  double median = NAN, low = NAN, high = NAN;
};

// From the steps themselves; from the record's own figures where those were not kept.
Spread spread_of(const PointDetail& detail) {
  std::vector<double> samples;
  for (const double ms : detail.time.samples_ms) {
    if (std::isfinite(ms)) samples.push_back(ms);
  }
  if (!samples.empty()) {
    const auto at = [&](double share) { return analysis::quantile(samples, share); };
    return {at(0.5), at(0.25), at(0.75)};
  }
  const Statistics& ms = detail.time.step_ms;
  return {ms.median, ms.median - ms.iqr / 2, ms.median + ms.iqr / 2};
}

// Dots stand right of the median, shifted by their number: the same picture every time.
double place_of(size_t point, size_t dot) {
  const double shift = std::fmod(static_cast<double>(dot) * 0.6180339887498949, 1.0);
  return static_cast<double>(point) + 0.12 + 0.26 * shift;
}

void add_dots(const std::vector<double>& samples, const char* word, size_t point, PointRef ref,
              double factor, SeriesBuilder& dots) {
  const size_t count = std::min(samples.size(), kMaxDots);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = count < samples.size() ? i * samples.size() / count : i;
    if (!std::isfinite(samples[at])) continue;
    dots.series.x.push_back(place_of(point, i));
    dots.series.y.push_back(samples[at] * factor);
    dots.series.labels.push_back(fmt::format("{} {} of {}", word, at + 1, samples.size()));
    dots.refs.push_back(ref);
  }
}

class SamplesPanel final : public ChartPanel {
 public:
  SamplesPanel()
      : ChartPanel({"samples", "Samples", DockPlace::Detail}, ChartSubject::ShownPoints) {}
  std::string script(const Workspace& workspace) const override {
    return script_for(workspace,
                      "for _, point in ipairs(runs.points) do\n"
                      "  local time = point.result and point.result.time or {}\n"
                      "  print(point.id, table.concat(time.samples_ms or {}, \" \"))\n"
                      "end");
  }

 protected:
  void draw_controls(const PanelContext&) override {
    const Choice choice{"warm-up, too",
                        "Steps before the measured ones: they pay for what is made "
                        "once, and are in no figure."};
    if (choose_whether(choice, with_warmup_)) remake();
    show_help(
        "A dot is one step. The mark is the median, its whiskers span the middle half of the "
        "steps.");
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    make_samples_chart(context.workspace, shown_details(context, chart), with_warmup_, chart);
  }

 private:
  bool with_warmup_ = false;
};

}  // namespace

void make_samples_chart(const Workspace& workspace, const std::vector<DetailedPoint>& points,
                        bool with_warmup, Chart& chart) {
  double longest = 0;
  size_t fewest = SIZE_MAX;
  std::vector<Spread> spreads(points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    if (!points[i].detail || workspace.head(points[i].ref).status != "ok") continue;
    const PointDetail& detail = *points[i].detail;
    spreads[i] = spread_of(detail);
    if (!std::isfinite(spreads[i].median)) continue;
    longest = std::max(longest, spreads[i].median);
    // A simulated step is computed once; it has no spread.
    if (workspace.is_simulated(points[i].ref)) continue;
    fewest = std::min(fewest, detail.time.samples_ms.size());
  }
  if (!(longest > 0)) {
    return say_nothing_shown(workspace, points, "No step times in these points",
                             "Every finished point has them; a running sweep adds its points by "
                             "itself.",
                             chart);
  }
  const Unit unit = time_unit(longest);
  SeriesBuilder medians, measured, warmup;
  medians.series.name = "median, middle half";
  const bool modelled = workspace.shows_simulated_alone();
  if (modelled) medians.series.name = "modelled step";
  measured.series.name = "measured steps";
  warmup.series.name = "warm-up";
  medians.series.color = 1;
  measured.series.color = 0;
  warmup.series.color = 6;
  for (size_t i = 0; i < points.size(); ++i) {
    const PointRef ref = points[i].ref;
    const bool known = std::isfinite(spreads[i].median);
    medians.series.x.push_back(static_cast<double>(i));
    medians.series.y.push_back(known ? figure(spreads[i].median * unit.factor) : std::nullopt);
    medians.series.low.push_back(known ? figure(spreads[i].low * unit.factor) : std::nullopt);
    medians.series.high.push_back(known ? figure(spreads[i].high * unit.factor) : std::nullopt);
    medians.series.status.push_back(known ? "ok"
                                          : missing_word(workspace, points[i], chart.waiting));
    medians.series.labels.push_back(hover_label(workspace, ref));
    medians.refs.push_back(ref);
    if (!known) continue;
    const PointDetail& detail = *points[i].detail;
    if (workspace.is_simulated(ref)) continue;
    add_dots(detail.time.samples_ms, "step", i, ref, unit.factor, measured);
    if (with_warmup) add_dots(detail.time.warmup_ms, "warm-up step", i, ref, unit.factor, warmup);
  }
  records::PlotPanel panel;
  panel.kind = records::PlotKind::Scatter;
  panel.x = point_axis(workspace, medians.refs);
  panel.y = {"step time", unit.name};
  chart.refs.emplace_back();
  for (SeriesBuilder* dots : {&measured, &warmup, &medians}) {
    if (dots->series.y.empty()) continue;
    if (dots != &medians) chart.unframed.insert({0, panel.series.size()});
    panel.series.push_back(std::move(dots->series));
    chart.refs.back().push_back(std::move(dots->refs));
  }
  panel.horizontal = points.size() > kMostUprightPoints;
  chart.spec.panels.push_back(std::move(panel));
  chart.spec.title = "Step times";
  chart.spec.width = 1000;
  chart.spec.height = stack_height(points.size());
  if (fewest > 0 && fewest < 5) {
    add_note(chart,
             fmt::format("Some points have only {} measured step{}: their spread says little.",
                         fewest, fewest == 1 ? "" : "s"));
  }
}

const MakePanel make_samples_panel = make_panel<SamplesPanel>;

}  // namespace moonshard::viewer
