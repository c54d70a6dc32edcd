// The training panel: what steps and evaluations gave, over the steps: loss, accuracy, perplexity,
// epsilon, learning rate, gradient norms. A line for each shown point, smoothed if asked to.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/chart_points.h"
#include "viewer/panels/detail_charts.h"
#include "viewer/panels/training_curves.h"
#include "viewer/script.h"
#include "viewer/widgets/choice.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxRuns = 12;         // colours that are told apart
constexpr size_t kMaxCurveDots = 2000;  // of a line

// What a chart shows of a step; several figures of one chart are lines of one run.
struct Curve {
  const char* suffix;  ///< after the run's name; empty where it is the chart's own figure
  double (*figure)(const StepRow&);
  bool smooth;  ///< figures of single batches scatter, those of evaluations are as they are
  bool of_one_run = false;  ///< left out where several runs are shown: too many lines
};
struct CurveChart {
  const char* title;
  const char* y;
  double factor;
  bool log_scale;
  std::vector<Curve> curves;
};

const std::vector<CurveChart>& curve_charts() {
  static const std::vector<CurveChart> charts{
      {"Loss",
       "loss",
       1,
       false,
       {{"", [](const StepRow& step) { return step.loss; }, true},
        {"evaluation", [](const StepRow& step) { return step.eval_loss; }, false}}},
      {"Accuracy",
       "%",
       100,
       false,
       {{"", [](const StepRow& step) { return step.accuracy; }, false},
        {"macro F1", [](const StepRow& step) { return step.macro_f1; }, false, true}}},
      {"Perplexity",
       "perplexity",
       1,
       false,
       {{"", [](const StepRow& step) { return step.perplexity; }, false}}},
      {"Epsilon spent",
       "epsilon",
       1,
       false,
       {{"", [](const StepRow& step) { return step.epsilon; }, false}}},
      {"Learning rate",
       "learning rate",
       1,
       false,
       {{"", [](const StepRow& step) { return step.lr; }, false}}},
      {"Gradient norms of samples",
       "norm",
       1,
       true,
       {{"median", [](const StepRow& step) { return step.norm_p50; }, true},
        {"10 %", [](const StepRow& step) { return step.norm_p10; }, true, true},
        {"90 %", [](const StepRow& step) { return step.norm_p90; }, true, true}}},
      {"Norm of the mean gradient",
       "norm",
       1,
       true,
       {{"", [](const StepRow& step) { return step.grad_norm; }, true}}},
  };
  return charts;
}

records::PlotSeries curve_series(const std::vector<StepRow>& steps, const Curve& curve,
                                 const CurveChart& chart, double smoothing) {
  std::vector<double> x, y;
  for (const StepRow& step : steps) {
    const double value = curve.figure(step);
    if (!std::isfinite(step.step) || !std::isfinite(value) || (chart.log_scale && value <= 0))
      continue;
    x.push_back(step.step);
    y.push_back(value * chart.factor);
  }
  if (curve.smooth) y = smoothed(y, smoothing);
  records::PlotSeries series;
  const size_t count = std::min(x.size(), kMaxCurveDots);
  for (size_t i = 0; i < count; ++i) {
    // The last one stands at the end, however many are left out between.
    const size_t at = count < 2 ? i : i * (x.size() - 1) / (count - 1);
    series.x.push_back(x[at]);
    series.y.push_back(y[at]);
  }
  return series;
}

class TrainingPanel final : public ChartPanel {
 public:
  TrainingPanel()
      : ChartPanel({"training", "Training", DockPlace::Charts}, ChartSubject::ShownPoints) {}
  std::string script(const Workspace& workspace) const override {
    return script_for(workspace,
                      "for _, point in ipairs(runs.points) do\n"
                      "  for _, step in ipairs(point.result and point.result.steps or {}) do\n"
                      "    print(point.id, step.step, step.loss, step.eval_loss, step.accuracy)\n"
                      "  end\n"
                      "end");
  }

 protected:
  void draw_controls(const PanelContext&) override {
    ImGui::SetNextItemWidth(10 * ImGui::GetFontSize());
    if (ImGui::SliderFloat("smoothing", &smoothing_, 0.0f, 0.99f, "%.2f")) remake();
    show_help(
        "An exponential moving average of the figures of single batches: how much of a value comes "
        "from the ones before it. Evaluations are drawn as they are.");
  }

  void make_chart(const PanelContext& context, Chart& chart) override {
    make_training_chart(context.workspace, shown_details(context, chart), smoothing_, chart);
  }

 private:
  float smoothing_ = 0;
};

}  // namespace

// Corrected for its start, as Adam's means are: the first value is itself.
std::vector<double> smoothed(const std::vector<double>& values, double smoothing) {
  if (!(smoothing > 0)) return values;
  std::vector<double> means;
  double mean = 0, weight = 0;
  for (const double value : values) {
    mean = smoothing * mean + (1 - smoothing) * value;
    weight = smoothing * weight + (1 - smoothing);
    means.push_back(mean / weight);
  }
  return means;
}

void make_training_chart(const Workspace& workspace, const std::vector<DetailedPoint>& all,
                         double smoothing, Chart& chart) {
  std::vector<DetailedPoint> points;
  std::vector<PointRef> refs;
  for (const DetailedPoint& point : all) {
    if (!point.detail || point.detail->steps.size() < 2) continue;
    if (points.size() < kMaxRuns) {
      points.push_back(point);
      refs.push_back(point.ref);
    }
  }
  if (points.empty()) {
    return say_nothing_shown(workspace, all, "No steps in these points",
                             "trainer:fit { epochs = … } and ms.log.run write them; experiments of "
                             "a sweep have theirs.",
                             chart);
  }
  const std::vector<std::string> names = point_labels(workspace, refs);
  for (const CurveChart& wanted : curve_charts()) {
    records::PlotPanel panel;
    panel.kind = records::PlotKind::Lines;
    panel.title = wanted.title;
    panel.x.label = "step";
    panel.y = {wanted.y, "", wanted.log_scale};
    std::vector<std::vector<PointRef>> marks;
    for (size_t i = 0; i < points.size(); ++i) {
      for (size_t c = 0; c < wanted.curves.size(); ++c) {
        const Curve& curve = wanted.curves[c];
        if (curve.of_one_run && points.size() > 1) continue;
        records::PlotSeries series =
            curve_series(points[i].detail->steps, curve, wanted, smoothing);
        if (series.x.empty()) continue;
        const bool alone = points.size() == 1;
        const std::string suffix = curve.suffix;
        series.name = alone
                          ? (suffix.empty()
                                 ? std::string(wanted.y == std::string("%") ? "accuracy" : wanted.y)
                                 : suffix)
                          : names[i] + (suffix.empty() ? "" : ", " + suffix);
        series.color = static_cast<int>(alone ? c : i);
        series.labels.assign(series.x.size(), hover_label(workspace, points[i].ref));
        marks.emplace_back(series.x.size(), points[i].ref);
        chart.unframed.insert({chart.spec.panels.size(), panel.series.size()});
        panel.series.push_back(std::move(series));
      }
    }
    if (panel.series.empty()) continue;
    chart.refs.push_back(std::move(marks));
    chart.spec.panels.push_back(std::move(panel));
  }
  if (chart.spec.panels.empty()) {
    return say_nothing_shown(workspace, all, "No figures in these steps",
                             "log a loss with run:log(step, { loss = … }).", chart);
  }
  const auto count = static_cast<int>(chart.spec.panels.size());
  chart.spec.columns = std::min(count, 2);
  chart.spec.title = "Training";
  chart.spec.width = count > 1 ? 1100 : 800;
  chart.spec.height = 320 * ((count + 1) / 2);
  const size_t left_out = static_cast<size_t>(std::ranges::count_if(
                              all,
                              [](const DetailedPoint& point) {
                                return point.detail && point.detail->steps.size() >= 2;
                              })) -
                          points.size();
  // Of more points than are read at all, nobody knows how many have steps.
  const bool cut = all.size() < workspace.shown().size();
  if (cut) chart.spec.note.clear();
  if (left_out > 0 || cut) {
    add_note(chart, first_points_note(points.size(),
                                      cut ? workspace.shown().size() : points.size() + left_out));
  }
  if (smoothing > 0)
    add_note(chart, fmt::format("Figures of single batches are smoothed by {:.2f}.", smoothing));
}

const MakePanel make_training_panel = make_panel<TrainingPanel>;

}  // namespace moonshard::viewer
