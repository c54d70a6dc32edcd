// The charts of what is inside points: figures, units, order, and which point stands behind which
// mark. Points that failed stay in the picture.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "viewer/panels/detail_charts.h"
#include "viewer/render/plot_layout.h"
#include "viewer/render/plot_table.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

using records::PlotKind;
using records::PlotPanel;
using records::PlotSeries;
constexpr double kMiB = 1 << 20;

class PanelCharts : public ::testing::Test {
 protected:
  // none and ghost at two lengths; the last one ran out of memory.
  void SetUp() override {
    RunData run;
    run.path = "/run";
    run.name = "sample";
    run.axes = {"mode", "seq_length", "batch_size"};
    run.baseline_axis = "mode";
    run.baseline_value = "none";
    RunBuilder builder(run);
    const char* const modes[] = {"none", "none", "ghost", "ghost"};
    for (size_t i = 0; i < 4; ++i) {
      const bool failed = i == 3;
      builder.add_point({"p" + std::to_string(i), failed ? "oom" : "ok", failed ? "no room" : ""});
      builder.set(run.options, i, "mode", std::string_view(modes[i]));
      builder.set(run.options, i, "seq_length", i % 2 == 0 ? 64.0 : 1024.0);
      builder.set(run.options, i, "batch_size", 4.0);
    }
    builder.finish();
    show(std::move(run));
    for (size_t i = 0; i < 4; ++i) {
      points_.push_back({{0, i}, i < 3 ? std::make_shared<PointDetail>() : nullptr});
    }
  }

  void show(RunData run) {
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->runs.push_back({std::make_shared<RunData>(std::move(run)), ""});
    snapshot->generation = ++generation_;
    workspace_.update(snapshot);
  }

  PointDetail& detail(size_t i) { return const_cast<PointDetail&>(*points_[i].detail); }
  NamedDetail named(size_t i) { return {"p", points_[i].ref, points_[i].detail}; }

  const PlotSeries& series(const std::string& name, size_t panel = 0) const {
    for (const PlotSeries& entry : chart_.spec.panels.at(panel).series) {
      if (entry.name == name) return entry;
    }
    throw std::runtime_error("no series " + name);
  }
  std::vector<std::string> names(size_t panel = 0) const {
    std::vector<std::string> list;
    for (const PlotSeries& entry : chart_.spec.panels.at(panel).series) list.push_back(entry.name);
    return list;
  }

  uint64_t generation_ = 0;
  Workspace workspace_;
  std::vector<DetailedPoint> points_;
  Chart chart_;
};

TEST_F(PanelCharts, NamesTellOnlyWhatDiffers) {
  EXPECT_EQ(point_labels(workspace_, {{0, 0}, {0, 3}}),
            (std::vector<std::string>{"none, 64 tokens", "ghost, 1024 tokens"}));
  EXPECT_EQ(point_labels(workspace_, {{0, 0}, {0, 1}}), (std::vector<std::string>{"64", "1024"}));
  const records::PlotAxis axis = point_axis(workspace_, {{0, 0}, {0, 1}});
  EXPECT_EQ(axis.label, "sequence length");
  EXPECT_EQ(axis.unit, "tokens");
  EXPECT_EQ(point_labels(workspace_, {{0, 2}}), (std::vector<std::string>{"p2"}));
  EXPECT_EQ(point_labels(workspace_, {{0, 0}, {0, 3}}, "mode"),
            (std::vector<std::string>{"64", "1024"}))
      << "the colour says the engine";
  EXPECT_EQ(workspace_.point_name({0, 3}), "ghost, 1024 tokens, batch 4");
}

TEST_F(PanelCharts, MemoryIsStackedInOrderWithTheRestOnTop) {
  detail(0).memory.breakdown = {{"zeppelins", kMiB}, {"rest", kMiB}, {"parameters", 2 * kMiB}};
  detail(1).memory.breakdown = {{"parameters", 3 * kMiB}, {"activations", 5 * kMiB}};
  detail(1).memory.rest_bytes = 4 * kMiB;  // beside the list, as older records have it
  detail(2).memory.breakdown = {{"parameters", NAN}, {"activations", -5}};
  make_memory_chart(workspace_, points_, {}, chart_);
  EXPECT_EQ(names(), (std::vector<std::string>{"parameters", "activations", "zeppelins", "rest"}));
  const PlotPanel& panel = chart_.spec.panels[0];
  EXPECT_EQ(panel.kind, PlotKind::StackedBars);
  EXPECT_EQ(panel.y.unit, "MiB");
  EXPECT_EQ(series("parameters").y[0], 2.0);
  EXPECT_EQ(series("activations").y[0], 0.0) << "a part that a point lacks is nothing";
  EXPECT_EQ(series("rest").y[1], 4.0);
  EXPECT_EQ(series("parameters").y[2], std::nullopt) << "nothing usable: no figure";
  EXPECT_EQ(series("parameters").status[2], "no value");
  EXPECT_EQ(series("parameters").y[3], std::nullopt);
  EXPECT_EQ(series("parameters").status[3], "oom");
  EXPECT_NE(series("parameters").labels[3].find("no room"), std::string::npos);
}

TEST_F(PanelCharts, EveryBarKnowsItsPointAndTheFailedOneIsDrawnOnce) {
  detail(0).memory.breakdown = {{"parameters", kMiB}, {"data", kMiB}};
  std::reverse(points_.begin(), points_.end());  // as pinning may order them
  make_memory_chart(workspace_, points_, {}, chart_);
  ASSERT_EQ(chart_.refs.size(), 1u);
  ASSERT_EQ(chart_.refs[0].size(), 2u);
  EXPECT_EQ(chart_.refs[0][1], (std::vector<PointRef>{{0, 3}, {0, 2}, {0, 1}, {0, 0}}));
  const PreparedPlot plot = prepare_plot(chart_.spec);
  size_t marked = 0;
  for (const PreparedSeries& entry : plot.panels[0].series) {
    for (const MissingPoint& point : entry.missing) marked += point.text == "oom";
  }
  EXPECT_EQ(marked, 1u);
}

TEST_F(PanelCharts, MemoryAfterTheStepAndAsShares) {
  detail(0).memory.breakdown = {{"parameters", 8 * kMiB}};
  detail(0).memory.after_step = {{"parameters", 3 * kMiB}, {"gradients", kMiB}};
  make_memory_chart(workspace_, points_, {true, true}, chart_);
  EXPECT_EQ(chart_.spec.panels[0].y.unit, "%");
  EXPECT_EQ(series("parameters").y[0], 75.0);
  EXPECT_EQ(series("gradients").y[0], 25.0);
}

TEST_F(PanelCharts, ABaselinePointIsALineAcrossTheBars) {
  detail(0).memory.breakdown = {{"parameters", 2 * kMiB}, {"data", kMiB}};
  detail(2).memory.breakdown = {{"parameters", 9 * kMiB}};
  make_memory_chart(workspace_, points_, {}, chart_);
  EXPECT_TRUE(chart_.spec.panels[0].references.empty()) << "mode = none is many points";
  Baseline baseline;
  baseline.kind = Baseline::Kind::Point;
  baseline.run = "/run";
  baseline.point = "p0";
  workspace_.set_baseline(baseline);
  chart_ = Chart();
  make_memory_chart(workspace_, points_, {}, chart_);
  ASSERT_EQ(chart_.spec.panels[0].references.size(), 1u);
  EXPECT_EQ(chart_.spec.panels[0].references[0].y, (std::vector<double>{3.0}));
}

TEST_F(PanelCharts, WithoutFiguresTheEmptyStateSaysWhatToDo) {
  make_memory_chart(workspace_, points_, {}, chart_);
  EXPECT_TRUE(chart_.spec.panels.empty());
  EXPECT_NE(chart_.empty_next.find("3 ok, 1 oom"), std::string::npos) << chart_.empty_next;
  EXPECT_NE(chart_.empty_next.find("profile"), std::string::npos);
  chart_ = Chart();
  make_phases_chart(workspace_, {}, {}, chart_);
  EXPECT_EQ(chart_.empty_what, "No points to show");
}

TEST_F(PanelCharts, APointThatIsBeingReadSaysSo) {
  detail(0).memory.breakdown = {{"parameters", kMiB}};
  points_[1].detail = nullptr;
  chart_.waiting = true;
  make_memory_chart(workspace_, points_, {}, chart_);
  EXPECT_EQ(series("parameters").status[1], "reading");
}

TEST_F(PanelCharts, ManyPartsAreAddedUpAndManyPointsLie) {
  for (int i = 0; i < 100; ++i)
    detail(0).memory.breakdown.push_back({"owner" + std::to_string(i), kMiB});
  std::vector<DetailedPoint> many(48, points_[0]);
  make_memory_chart(workspace_, many, {}, chart_);
  EXPECT_EQ(chart_.spec.panels[0].series.size(), 41u);
  EXPECT_EQ(series("others").y[47], 60.0);
  EXPECT_TRUE(chart_.spec.panels[0].horizontal);
}

PhaseTime phase(const std::string& name, double median, double mean, double min) {
  PhaseTime made{name, {}};
  made.value.median = median;
  made.value.mean = mean;
  made.value.min = min;
  return made;
}

TEST_F(PanelCharts, PhasesAreStackedInTheOrderOfTheStep) {
  detail(0).time.phases_ms = {phase("optimizer", 1, 2, 0.5), phase("forward", 3, 6, 1.5)};
  detail(2).time.phases_ms = {phase("warp", 5, 5, 5), phase("second_backward", 7, 8, 6)};
  make_phases_chart(workspace_, points_, {}, chart_);
  EXPECT_EQ(names(), (std::vector<std::string>{"forward", "second backward", "optimizer", "warp"}));
  EXPECT_EQ(series("forward").y[0], 3.0);
  EXPECT_EQ(series("second backward").y[2], 7.0);
  EXPECT_EQ(series("forward").status[1], "no value");
  chart_ = Chart();
  make_phases_chart(workspace_, points_, {PhaseStatistic::Min, false}, chart_);
  EXPECT_EQ(series("forward").y[0], 1.5);
  chart_ = Chart();
  make_phases_chart(workspace_, points_, {PhaseStatistic::Mean, true}, chart_);
  EXPECT_EQ(series("forward").y[0], 75.0);
}

TEST_F(PanelCharts, SamplesHaveQuartilesAndNeverLeaveTheirColumn) {
  detail(0).time.samples_ms = {4, 1, 3, 2, 5, NAN};
  detail(0).time.warmup_ms = {9};
  detail(1).time.step_ms.median = 10;
  detail(1).time.step_ms.iqr = 2;
  for (int i = 0; i < 10000; ++i) detail(2).time.samples_ms.push_back(i % 100);
  make_samples_chart(workspace_, points_, true, chart_);
  const PlotSeries& median = series("median, middle half");
  EXPECT_EQ(median.y[0], 3.0);
  EXPECT_EQ(median.low[0], 2.0);
  EXPECT_EQ(median.high[0], 4.0);
  EXPECT_EQ(median.low[1], 9.0) << "from the record's own figures where steps were not kept";
  EXPECT_EQ(median.y[3], std::nullopt);
  EXPECT_EQ(median.status[3], "oom");
  const PlotSeries& dots = series("measured steps");
  EXPECT_EQ(dots.y.size(), 5u + 400u);
  for (const double x : dots.x) {
    EXPECT_GE(x - std::floor(x), 0.1);
    EXPECT_LE(x - std::floor(x), 0.4);
  }
  EXPECT_EQ(series("warm-up").y, (records::MaybeNumbers{9.0}));
  EXPECT_EQ(chart_.refs[0].back(), (std::vector<PointRef>{{0, 0}, {0, 1}, {0, 2}, {0, 3}}));
  EXPECT_EQ(chart_.refs[0][0].size(), dots.y.size()) << "a click on any dot selects its point";
  EXPECT_EQ(chart_.unframed, (std::set<std::pair<size_t, size_t>>{{0, 0}, {0, 1}}))
      << "only the median is framed";
  // The table that is copied names the point of every dot.
  const records::CsvTable table = plot_table(chart_.spec);
  EXPECT_EQ(table.rows[0][1], "none, 64 tokens");
}

TEST_F(PanelCharts, ATimelineKeepsItsPeakHoweverLongItIs) {
  MemoryTimeline& timeline = detail(0).memory.timeline;
  timeline.phase.names = {"forward", "backward"};
  timeline.owners = {{"activations", {}}, {"parameters", {}}, {"never", {}}};
  constexpr size_t kCount = 50'000, kPeak = 31'234;
  for (size_t i = 0; i < kCount; ++i) {
    timeline.ms.push_back(static_cast<double>(i) / 1000);
    timeline.total.push_back(0);
    timeline.phase.index.push_back(i < 20'000 ? 0 : 1);
    timeline.owners[0].value.push_back(i == kPeak ? 7 * kMiB : kMiB);
    timeline.owners[1].value.push_back(kMiB);
    timeline.owners[2].value.push_back(0);
  }
  make_timeline_chart({named(0)}, chart_);
  const PlotPanel& panel = chart_.spec.panels[0];
  EXPECT_EQ(names(), (std::vector<std::string>{"parameters", "activations"}));
  const PlotSeries& held = series("activations");
  EXPECT_LE(held.y.size(), 3001u);
  EXPECT_EQ(*std::max_element(held.y.begin(), held.y.end()), 7.0);
  EXPECT_TRUE(std::is_sorted(held.x.begin(), held.x.end()));
  ASSERT_EQ(panel.bands.size(), 2u);
  EXPECT_EQ(panel.bands[0].to, 20.0);
  EXPECT_EQ(panel.bands[1].label, "backward");
  EXPECT_EQ(panel.x.unit, "ms") << "the linked cursor is in ms";
}

TEST_F(PanelCharts, TwoTimelinesShareTheirAxes) {
  for (const size_t i : {0u, 1u}) {
    detail(i).memory.timeline.ms = {0, 1, i == 0 ? 2.0 : 8.0};
    detail(i).memory.timeline.total = {kMiB, (i == 0 ? 5 : 2) * kMiB, kMiB};
    detail(i).memory.timeline.phase.index = {0, 0, 0};
    detail(i).memory.timeline.phase.names = {"forward"};
  }
  make_timeline_chart({named(0), named(1)}, chart_);
  ASSERT_EQ(chart_.spec.panels.size(), 2u);
  EXPECT_EQ(names(1), (std::vector<std::string>{"total"}));
  for (const PlotPanel& panel : chart_.spec.panels) {
    EXPECT_EQ(panel.x.max, 8.0);
    EXPECT_GT(*panel.y.max, 5.0);
  }
  EXPECT_EQ(chart_.refs[1][0][0], (PointRef{0, 1}));
  detail(0).memory.timeline.ms = {0, 5, 2};
  chart_ = Chart();
  make_timeline_chart({named(0), named(1)}, chart_);
  EXPECT_TRUE(chart_.spec.panels.empty());
  EXPECT_NE(chart_.empty_next.find("order of time"), std::string::npos);
}

TEST_F(PanelCharts, LayersComeLongestFirstBesideThoseOfTheBaseline) {
  detail(0).layers = {{"model.a", 1, "linear"},
                      {"model.b", 3, "norm"},
                      {"model.c", 2, "linear"},
                      {"model.d", NAN, "linear"}};
  detail(1).layers = {{"model.b", 30, "norm"}};
  make_layers_chart({named(0), {"other", {0, 1}, points_[1].detail}}, {2, false}, chart_);
  const PlotPanel& panel = chart_.spec.panels[0];
  EXPECT_TRUE(panel.horizontal);
  EXPECT_EQ(panel.x.categories, (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(series("p").y, (records::MaybeNumbers{3.0, 2.0}));
  EXPECT_EQ(series("other").y, (records::MaybeNumbers{30.0, std::nullopt}));
  EXPECT_EQ(chart_.spec.note, "The 2 slowest of 3; together 83 % of all norm time.");
  chart_ = Chart();
  make_layers_chart({named(0)}, {20, true}, chart_);
  EXPECT_EQ(chart_.spec.panels[0].x.categories, (std::vector<std::string>{"linear", "norm"}));
  EXPECT_EQ(series("p").y, (records::MaybeNumbers{3.0, 3.0}));
  EXPECT_EQ(series("p").labels[0], "2 layers");
}

TEST_F(PanelCharts, LayersHaveTheColoursOfTheirEngines) {
  detail(0).layers = {{"model.a", 1, "linear"}};
  detail(1).layers = {{"model.a", 2, "linear"}};
  NamedDetail point = named(0), other = named(1);
  point.color = 4;
  other.color = 6;
  other.name = "other";
  make_layers_chart({point, other}, {20, false}, chart_);
  EXPECT_EQ(series("p").color, 4);
  EXPECT_EQ(series("other").color, 6);
  chart_ = Chart();
  other.color = 4;  // one engine: the baseline is grey
  make_layers_chart({point, other}, {20, false}, chart_);
  EXPECT_EQ(series("other").color, 6);
}

TEST_F(PanelCharts, ATimelineSaysOfHowManyStepsItIs) {
  for (const size_t i : {0u, 1u}) {
    MemoryTimeline& timeline = detail(i).memory.timeline;
    timeline.ms = {0, 10, 20};
    timeline.total = {kMiB, kMiB, kMiB};
    timeline.owners = {{"parameters", {kMiB, kMiB, kMiB}}};
  }
  make_timeline_chart({named(0)}, chart_);
  EXPECT_EQ(chart_.spec.title, "Memory through the watched step");
  EXPECT_EQ(chart_.spec.panels[0].x.label, "time in the step");
  detail(1).memory.timeline.step_begins_ms = {0, 10};
  chart_ = Chart();
  make_timeline_chart({named(1)}, chart_);
  EXPECT_EQ(chart_.spec.title, "Memory through 2 watched steps");
  EXPECT_EQ(chart_.spec.panels[0].x.label, "time since the first step began");
}

TEST_F(PanelCharts, CommunicationIsSplitIntoExposedAndHidden) {
  detail(0).comm = {{"all_gather", 3, 1024, 10, 4, 60}, {"all_reduce", 1, 8, 1, 5, 0}};
  detail(0).ranks = {{0, NAN, NAN, 11, 9, 50}, {1, NAN, NAN, NAN, NAN, NAN}};
  make_communication_chart(named(0), chart_);
  ASSERT_EQ(chart_.spec.panels.size(), 2u);
  EXPECT_EQ(chart_.spec.panels[0].x.categories,
            (std::vector<std::string>{"all gather", "all reduce"}));
  EXPECT_EQ(series("exposed").y, (records::MaybeNumbers{4.0, 5.0}));
  EXPECT_EQ(series("hidden").y, (records::MaybeNumbers{6.0, 0.0}));
  EXPECT_EQ(series("hidden", 1).y, (records::MaybeNumbers{5.5}));
  EXPECT_EQ(chart_.spec.note,
            "Collectives of the watched step: work 11 ms, exposed 9 ms, 18 % of the work hidden.")
      << "as the record's comm_overlap_percent: of the sums";
  chart_ = Chart();
  make_communication_comparison(workspace_, points_, chart_);
  EXPECT_EQ(series("exposed").y[0], 9.0);
  EXPECT_EQ(series("exposed").status[3], "oom");
  chart_ = Chart();
  make_communication_chart(named(1), chart_);
  EXPECT_NE(chart_.empty_next.find("nproc"), std::string::npos);
}

TEST_F(PanelCharts, NormsStandAroundTheBoundOnALogAxis) {
  PrivacyPart& claim = detail(2).privacy;
  claim.private_engine = true;
  claim.norms_histogram.edges = {0.5, 1, 2};
  claim.norms_histogram.counts = {3, 7};
  claim.max_grad_norm = 1.5;
  detail(2).steps = {{.step = 1, .warmup = true, .loss = 0, .clip_fraction = 0.25, .phases_ms = {}},
                     {.step = 2, .loss = 0, .phases_ms = {}}};
  make_privacy_chart(named(2), chart_);
  ASSERT_EQ(chart_.spec.panels.size(), 2u);
  const PlotPanel& norms = chart_.spec.panels[0];
  EXPECT_TRUE(norms.x.log_scale);
  EXPECT_EQ(series("samples").x, (std::vector<double>{0.5, 1, 1, 2}));
  EXPECT_EQ(series("samples").y, (records::MaybeNumbers{3.0, 3.0, 7.0, 7.0}));
  EXPECT_EQ(norms.references.at(0).x, (std::vector<double>{1.5}));
  EXPECT_EQ(series("clipped", 1).y, (records::MaybeNumbers{25.0}));
  claim.norms_histogram.edges = {2, 1, 0.5};
  chart_ = Chart();
  make_privacy_chart(named(2), chart_);
  EXPECT_EQ(chart_.spec.panels.size(), 1u) << "falling edges are no histogram";
}

TEST_F(PanelCharts, AxesAreCutOnlyWhenAsked) {
  records::PlotPanel panel;
  panel.kind = PlotKind::Lines;
  panel.series.push_back({"s", {1, 2}, {9.04, 9.09}});
  chart_.spec.panels.push_back(panel);
  EXPECT_TRUE(has_zero_axes(chart_.spec));
  EXPECT_EQ(prepare_plot(chart_.spec).panels[0].y_range.min, 0);
  cut_axes(chart_.spec);
  EXPECT_GT(prepare_plot(chart_.spec).panels[0].y_range.min, 9);
  panel.kind = PlotKind::Bars;
  chart_.spec.panels = {panel};
  EXPECT_FALSE(has_zero_axes(chart_.spec));
  cut_axes(chart_.spec);
  EXPECT_FALSE(chart_.spec.panels[0].y.min) << "bars stand on zero";
}

TEST_F(PanelCharts, BothPeaksAreNamedAsWhatTheyAre) {
  detail(0).memory.breakdown = {{"parameters", kMiB}};
  make_memory_chart(workspace_, points_, {}, chart_);
  EXPECT_NE(chart_.spec.title.find("watched step"), std::string::npos);
  EXPECT_NE(chart_.spec.note.find("measured peak"), std::string::npos);
  EXPECT_EQ(metric_title("peak_memory_bytes"), "measured peak memory");
}

}  // namespace
}  // namespace moonshard::viewer
