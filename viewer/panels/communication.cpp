// The communication panel: what the collectives of the watched step cost, and what of it nothing
// hides; per kind and per rank of the selected point, or one bar for each shown point.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "viewer/panels/detail_charts.h"
#include "viewer/script.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/definitions.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxCostRows = 128;
constexpr const char* kExposed = "exposed";
constexpr const char* kHidden = "hidden";
constexpr const char* kNeeds =
    "Several ranks record it: ddp or fsdp with nproc above 1, measured with --profile phases, "
    "layers "
    "or trace.";

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

// As the record's comm_overlap_percent: by the sums, so that waiting of one kind counts against the
// hidden work of another.
std::string hidden_text(const Cost& cost) {
  if (!(cost.work > 0)) return "no work, only waiting";
  return fmt::format("{:.0f} % of the work hidden",
                     100 * std::max(cost.work - cost.exposed, 0.0) / cost.work);
}

struct CostBar {
  std::string name;
  Cost cost;
  std::string label;
};

// Two parts on each other: what nothing hides at the foot, where it can be compared.
void add_stack(const char* title, const char* axis, const std::vector<CostBar>& bars,
               Chart& chart) {
  if (bars.empty()) return;
  double largest = 0;
  for (const CostBar& bar : bars) largest = std::max(largest, bar.cost.exposed + bar.cost.hidden);
  const Unit unit = time_unit(largest);
  records::PlotPanel panel;
  panel.kind = records::PlotKind::StackedBars;
  panel.title = title;
  panel.x.label = axis;
  panel.y = {"time per step", unit.name};
  panel.horizontal = bars.size() > 6;
  for (const CostBar& bar : bars) panel.x.categories.push_back(bar.name);
  for (const bool exposed : {true, false}) {
    records::PlotSeries& series = panel.series.emplace_back();
    series.name = exposed ? kExposed : kHidden;
    series.color = exposed ? 1 : 5;
    for (size_t i = 0; i < bars.size(); ++i) {
      series.x.push_back(static_cast<double>(i));
      series.y.push_back((exposed ? bars[i].cost.exposed : bars[i].cost.hidden) * unit.factor);
      series.labels.push_back(bars[i].label);
    }
  }
  chart.spec.panels.push_back(std::move(panel));
}

std::string collective_label(const Collective& entry, const Cost& cost) {
  return fmt::format("work {} ms in {} calls, {}; {}", format_number(cost.work),
                     format_number(entry.count), format_bytes(not_negative(entry.bytes)),
                     hidden_text(cost));
}

class CommunicationPanel final : public ChartPanel {
 public:
  CommunicationPanel() : ChartPanel({"communication", "Communication", DockPlace::Detail}) {}
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

  void make_chart(const PanelContext& context, Chart& chart) override {
    if (all_points_ == 1)
      return make_communication_comparison(context.workspace, shown_details(context, chart), chart);
    const std::vector<NamedDetail> points = selected_and_baseline(context, false, chart);
    if (!points.empty()) make_communication_chart(points[0], chart);
  }

 private:
  int all_points_ = 0;
};

}  // namespace

void make_communication_chart(const NamedDetail& point, Chart& chart) {
  const PointDetail& detail = *point.detail;
  std::vector<CostBar> kinds, ranks;
  for (const Collective& entry : detail.comm) {
    if (kinds.size() == kMaxCostRows) break;
    const Cost cost = cost_of(entry.work_ms, entry.exposed_ms);
    kinds.push_back({shown_name(entry.operation), cost, collective_label(entry, cost)});
  }
  for (const RankRow& rank : detail.ranks) {
    if (ranks.size() == kMaxCostRows || std::isnan(rank.comm_work_ms)) continue;
    Cost cost = cost_of(rank.comm_work_ms, rank.comm_exposed_ms);
    // The sums hide what single collectives had: the rank's own share is exact.
    if (std::isfinite(rank.comm_overlap_percent)) {
      cost.hidden = cost.work * std::clamp(rank.comm_overlap_percent / 100, 0.0, 1.0);
    }
    ranks.push_back(
        {format_number(rank.rank), cost,
         fmt::format("work {} ms; {:.0f} % of the work hidden", format_number(cost.work),
                     cost.work > 0 ? 100 * cost.hidden / cost.work : 0.0)});
  }
  if (kinds.empty() && ranks.empty()) {
    chart.empty_what = "No communication in this point";
    chart.empty_next = kNeeds;
    return;
  }
  const Cost total = total_cost(detail);
  if (!kinds.empty()) {
    chart.spec.note =
        fmt::format("Collectives of the watched step: work {} ms, exposed {} ms, {}.",
                    format_number(total.work), format_number(total.exposed), hidden_text(total));
  }
  add_stack("By kind of collective, rank 0", "", kinds, chart);
  add_stack("By rank", "rank", ranks, chart);
  if (ranks.empty() && detail.ranks.size() > 1) {
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

const MakePanel make_communication_panel = make_panel<CommunicationPanel>;

}  // namespace moonshard::viewer
