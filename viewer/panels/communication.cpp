// The communication panel: what the collectives of the watched step cost, and what of it nothing
// hides; per kind and per rank of the selected point, or one bar for each shown point.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/detail_charts.h"
#include "viewer/panels/make_panels.h"
#include "viewer/script.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/definitions.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxRows = 128;
constexpr const char* kExposed = "exposed";
constexpr const char* kHidden = "hidden";
constexpr const char* kNeeds =
    "Several ranks record it: parallel = \"ddp\" or \"fsdp\" with nproc above 1, and profile = "
    "\"phases\", \"layers\" or \"trace\".";

double not_negative(double value) {
  return std::isfinite(value) ? std::max(value, 0.0) : 0.0;
}

// Waiting for other ranks counts as exposed, so that this may be more than the work.
struct Cost {
  double work = 0, exposed = 0, hidden = 0;  // ms
};

Cost cost_of(double work_ms, double exposed_ms) {
  const double work = not_negative(work_ms), exposed = not_negative(exposed_ms);
  return {work, exposed, std::max(work - exposed, 0.0)};
}

Cost total_cost(const PointDetail& detail) {
  Cost total;
  for (const Collective& entry : detail.comm) {
    const Cost cost = cost_of(entry.work_ms, entry.exposed_ms);
    total.work += cost.work;
    total.exposed += cost.exposed;
    total.hidden += cost.hidden;
  }
  return total;
}

std::string hidden_text(const Cost& cost) {
  if (!(cost.work > 0)) return "no work, only waiting";
  return fmt::format("{:.0f} % of the work hidden", 100 * cost.hidden / cost.work);
}

// Two parts on each other: what nothing hides at the foot, where it can be compared.
class CostStack {
 public:
  CostStack(std::string title, std::string axis) {
    panel_.kind = records::PlotKind::StackedBars;
    panel_.title = std::move(title);
    panel_.x.label = std::move(axis);
    panel_.series.resize(2);
    panel_.series[0].name = kExposed;
    panel_.series[0].color = 1;
    panel_.series[1].name = kHidden;
    panel_.series[1].color = 5;
  }

  void add(const std::string& category, const Cost& cost, const std::string& label) {
    const auto place = static_cast<double>(panel_.x.categories.size());
    panel_.x.categories.push_back(category);
    const double parts[] = {cost.exposed, cost.hidden};
    for (size_t s = 0; s < 2; ++s) {
      panel_.series[s].x.push_back(place);
      panel_.series[s].y.push_back(parts[s]);
      panel_.series[s].labels.push_back(label);
    }
    ++size_;
    largest_ = std::max(largest_, cost.exposed + cost.hidden);
  }
  size_t size() const { return size_; }

  void finish(Chart& chart) {
    const Unit unit = time_unit(largest_);
    panel_.y = {"time per step", unit.name};
    for (records::PlotSeries& series : panel_.series) {
      for (std::optional<double>& y : series.y) y = *y * unit.factor;
    }
    panel_.horizontal = size_ > 6;
    chart.spec.panels.push_back(std::move(panel_));
  }

 private:
  records::PlotPanel panel_;
  size_t size_ = 0;
  double largest_ = 0;
};

std::string collective_label(const Collective& entry, const Cost& cost) {
  return fmt::format("work {} ms in {} calls, {}; {}", format_number(cost.work),
                     format_number(entry.count), format_bytes(not_negative(entry.bytes)),
                     hidden_text(cost));
}

class CommunicationPanel final : public ChartPanel {
 public:
  std::string_view name() const override { return "communication"; }
  const char* title() const override { return "Communication"; }
  DockPlace place() const override { return DockPlace::Detail; }
  const char* purpose() const override {
    return "What collectives cost in a step, and what of it the computation hides: by kind, by "
           "rank, by point.";
  }
  std::string script(const Workspace& workspace) const override {
    if (all_points_ == 1) return figure_script(workspace, "communication_comparison");
    const std::optional<PointRef> ref = workspace.selected_point();
    if (!ref) return "";
    return script_for(
        workspace,
        fmt::format("for _, point in ipairs(runs.points) do\n"
                    "  for _, entry in ipairs(point.id == {} and point.result.comm or {{}}) do\n"
                    "    print(entry.operation, entry.count, entry.bytes, entry.work_ms, "
                    "entry.exposed_ms, entry.overlap_percent)\n"
                    "  end\n"
                    "end",
                    lua_text(workspace.head(*ref).id)));
  }

 protected:
  void draw_controls(const PanelContext&) override {
    const Choice subjects[] = {{"selected point", "Each kind of collective, and each rank."},
                               {"all shown points", "One bar for all collectives of a point."}};
    if (choose("subject", subjects, all_points_)) remake();
    show_help(fmt::format(
        "Exposed: {} It holds the wait for slower ranks, too, so that it may be more than the "
        "work. Hidden: work behind the computation.",
        definition_of("exposed_ms")));
  }

  Chart make_chart(const PanelContext& context) override {
    Chart chart;
    if (all_points_ == 1) {
      const std::vector<DetailedPoint> points = shown_details(context, chart);
      make_communication_comparison(context.workspace, points, chart);
      return chart;
    }
    const std::vector<NamedDetail> points = selected_and_baseline(context, false, chart);
    if (!points.empty()) make_communication_chart(points[0], chart);
    return chart;
  }

 private:
  int all_points_ = 0;
};

}  // namespace

void make_communication_chart(const NamedDetail& point, Chart& chart) {
  const PointDetail& detail = *point.detail;
  CostStack kinds("By kind of collective, rank 0", ""), ranks("By rank", "rank");
  for (const Collective& entry : detail.comm) {
    if (kinds.size() == kMaxRows) break;
    const Cost cost = cost_of(entry.work_ms, entry.exposed_ms);
    kinds.add(shown_name(entry.operation), cost, collective_label(entry, cost));
  }
  for (const RankRow& rank : detail.ranks) {
    if (ranks.size() == kMaxRows || std::isnan(rank.comm_work_ms)) continue;
    Cost cost = cost_of(rank.comm_work_ms, rank.comm_exposed_ms);
    // The sums hide what single collectives had: the rank's own share is exact.
    if (std::isfinite(rank.comm_overlap_percent)) {
      cost.hidden = cost.work * std::clamp(rank.comm_overlap_percent / 100, 0.0, 1.0);
    }
    ranks.add(format_number(rank.rank), cost,
              fmt::format("work {} ms; {}", format_number(cost.work), hidden_text(cost)));
  }
  if (kinds.size() == 0 && ranks.size() == 0) {
    chart.empty_what = "No communication in this point";
    chart.empty_next = kNeeds;
    return;
  }
  const Cost total = total_cost(detail);
  if (kinds.size() > 0) {
    chart.spec.note =
        fmt::format("Collectives of the watched step: work {} ms, exposed {} ms, {}.",
                    format_number(total.work), format_number(total.exposed), hidden_text(total));
    kinds.finish(chart);
  }
  if (ranks.size() > 0) ranks.finish(chart);
  if (ranks.size() == 0 && detail.ranks.size() > 1) {
    chart.spec.note += " The record is older than the figures of single ranks.";
  }
  chart.spec.title = "Communication: " + point.name;
  chart.spec.width = 560 * static_cast<int>(chart.spec.panels.size());
}

void make_communication_comparison(const Workspace& workspace,
                                   const std::vector<DetailedPoint>& points, Chart& chart) {
  StackAsk ask;
  ask.parts = {kExposed, kHidden};
  ask.value = [](const PointDetail& detail, const std::string& part) {
    const Cost total = total_cost(detail);
    return part == kExposed ? total.exposed : total.hidden;
  };
  ask.label = "time of the collectives";
  if (!add_stacked_bars(workspace, points, ask, chart)) {
    return say_nothing_shown(workspace, points, "No communication in these points", kNeeds, chart);
  }
  records::PlotPanel& panel = chart.spec.panels.front();
  for (records::PlotSeries& series : panel.series) {
    series.color = series.name == kExposed ? 1 : 5;
    for (size_t i = 0; i < points.size(); ++i) {
      if (!series.y[i]) continue;
      series.labels[i] += ": " + hidden_text(total_cost(*points[i].detail));
    }
  }
  chart.spec.title = "Communication of a step";
}

std::unique_ptr<Panel> make_communication_panel() {
  return std::make_unique<CommunicationPanel>();
}

}  // namespace moonshard::viewer
