#include "viewer/panels/chart_panel.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <imgui.h>

#include "viewer/render/plot_table.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

// Changes with what the axes mean, not with single values: zoom survives new points.
size_t shape_of(const records::PlotSpec& spec) {
  size_t hash = spec.panels.size();
  const auto mix = [&hash](const std::string& text) {
    hash = hash * 1099511628211ull + std::hash<std::string>()(text);
  };
  for (const records::PlotPanel& panel : spec.panels) {
    mix(panel.title);
    mix(panel.x.label + panel.x.unit);
    mix(panel.y.label + panel.y.unit);
    hash = hash * 31 + panel.x.categories.size();
  }
  return hash;
}

const PointRef* ref_of(const Chart& chart, const PlotHit& hit) {
  if (hit.panel >= chart.refs.size() || hit.at.series >= chart.refs[hit.panel].size()) {
    return nullptr;
  }
  const std::vector<PointRef>& refs = chart.refs[hit.panel][hit.at.series];
  return hit.at.source < refs.size() ? &refs[hit.at.source] : nullptr;
}

}  // namespace

void ChartPanel::draw(const PanelContext& context) {
  draw_controls(context);
  const uint64_t workspace = subject_ == ChartSubject::SelectedPoint
                                 ? context.workspace.revision()
                                 : context.workspace.shown_revision();
  const uint64_t store = context.store.revision();
  if (stale_ || workspace != workspace_revision_ || store != store_revision_) {
    stale_ = false;
    workspace_revision_ = workspace;
    store_revision_ = store;
    const bool was_waiting = chart_.waiting;
    chart_ = Chart();
    make_chart(context, chart_);
    if (!chart_.spec.panels.empty()) {
      name_modelled(context.workspace, chart_, subject_ == ChartSubject::SelectedPoint);
      zero_axes_ = has_zero_axes(chart_.spec);
      if (!from_zero_) cut_axes(chart_.spec);
    }
    plot_ = prepare_plot(chart_.spec);
    const size_t shape = shape_of(chart_.spec);
    if (shape != shape_) state_ = PlotState();
    if (was_waiting) state_.fit = true;  // while points are being read the range follows them
    shape_ = shape;
  }
  if (chart_.spec.panels.empty()) {
    const bool reading = chart_.waiting || context.loading;
    return show_empty_state(reading ? "Reading ..." : chart_.empty_what,
                            reading ? "" : chart_.empty_next, context.style);
  }
  if (zero_axes_ && choose_whether({"from zero",
                                    "Axes begin at zero. Without it they span the figures: small "
                                    "differences are blown up."},
                                   from_zero_)) {
    remake();
    state_.fit = true;
  }
  draw_toolbar(context);
  draw_figure(context);
}

void ChartPanel::draw_toolbar(const PanelContext& context) {
  if (button_at_right("Export")) ImGui::OpenPopup("##export");
  if (!ImGui::BeginPopup("##export")) return;
  if (ImGui::MenuItem("Picture as PNG ...", "Ctrl+E")) {
    context.requests.export_plot = ExportRequest{chart_.spec, std::string(name())};
  }
  if (ImGui::MenuItem("Copy data as CSV")) {
    context.requests.copy(plot_csv(chart_.spec), "the chart's data as CSV");
  }
  if (ImGui::MenuItem("Copy data as Markdown")) {
    context.requests.copy(plot_markdown(chart_.spec), "the chart's data as Markdown");
  }
  const std::string lua = script(context.workspace);
  if (ImGui::MenuItem("Copy as script", nullptr, false, !lua.empty())) {
    context.requests.copy(lua, "a Lua script that makes this chart");
  }
  ImGui::EndPopup();
}

void ChartPanel::mark_selected(const PanelContext& context) {
  state_.marked.clear();
  const std::optional<PointRef> selected = context.workspace.selected_point();
  if (!selected) return;
  for (size_t p = 0; p < chart_.refs.size(); ++p) {
    for (size_t s = 0; s < chart_.refs[p].size(); ++s) {
      if (chart_.unframed.contains({p, s})) continue;
      for (size_t i = 0; i < chart_.refs[p][s].size(); ++i) {
        if (chart_.refs[p][s][i] == *selected) state_.marked.push_back({p, {s, i}});
      }
    }
  }
}

// A figure keeps a readable size and scrolls where the panel is smaller; else it fills the panel.
void ChartPanel::draw_figure(const PanelContext& context) {
  ImVec2 size = ImGui::GetContentRegionAvail();
  const size_t asked =
      chart_.spec.columns > 0 ? static_cast<size_t>(chart_.spec.columns) : plot_.panels.size();
  plot_.columns = readable_columns(plot_, asked, size.x);
  const float wanted =
      readable_height(plot_, size.x - ImGui::GetStyle().ScrollbarSize, context.style);
  const bool scrolls = wanted > size.y;
  mark_selected(context);
  if (x_is_step_time()) state_.cursor_x = context.workspace.cursor_ms;
  ImGui::BeginChild("##figure", size);
  if (scrolls) size = ImVec2(size.x - ImGui::GetStyle().ScrollbarSize, wanted);
  draw_plot(plot_, state_, size, context.style, true);
  ImGui::EndChild();
  if (x_is_step_time() && state_.hovered_x) context.workspace.cursor_ms = state_.hovered_x;
  if (state_.clicked && state_.hovered) {
    if (const PointRef* ref = ref_of(chart_, *state_.hovered)) context.workspace.select(*ref);
  }
}

std::vector<DetailedPoint> shown_details(const PanelContext& context, Chart& chart) {
  std::vector<DetailedPoint> points;
  const Workspace& workspace = context.workspace;
  const size_t count = std::min(workspace.shown().size(), kMaxDetailedPoints);
  for (size_t i = 0; i < count; ++i) {
    const PointRef ref = workspace.shown()[i];
    const std::string& status = workspace.head(ref).status;
    if (status == "planned" || status == "skipped") {  // there is no result to read
      points.push_back({ref, nullptr});
      continue;
    }
    const Loaded<PointDetail> loaded = context.detail(ref);
    chart.waiting = chart.waiting || (loaded.loading && !loaded.value);
    points.push_back({ref, loaded.value});
  }
  if (count < workspace.shown().size()) {
    chart.spec.note = first_points_note(count, workspace.shown().size());
  }
  return points;
}

std::shared_ptr<const PointDetail> selected_detail(const PanelContext& context, Chart& chart) {
  const std::optional<PointRef> ref = context.workspace.selected_point();
  if (!ref) {
    say_why_empty(context.snapshot, "No point selected",
                  "Click a row of the run table, or a mark in a chart.", chart);
    return nullptr;
  }
  const Loaded<PointDetail> loaded = context.detail(*ref);
  chart.waiting = loaded.loading && !loaded.value;
  if (loaded.value && loaded.error.empty()) return loaded.value;
  chart.empty_what = "This point has no result";
  chart.empty_next =
      clean_text(loaded.error.empty() ? "Its status is " + context.workspace.head(*ref).status + "."
                                      : loaded.error);
  return nullptr;
}

void say_why_empty(const Snapshot& snapshot, const char* what, const char* next, Chart& chart) {
  const bool any = !snapshot.runs.empty();
  chart.empty_what = any ? what : "No folder is open";
  chart.empty_next = any ? next : "Press Ctrl+O, or drop a run folder here.";
}

void name_modelled(const Workspace& workspace, Chart& chart, bool of_selected) {
  std::set<std::pair<size_t, size_t>> all, modelled, simulated;
  std::set<std::string> links;
  const auto look_at = [&](PointRef ref) {
    all.insert({ref.run, ref.point});
    if (!workspace.is_modelled(ref)) return;
    modelled.insert({ref.run, ref.point});
    if (workspace.is_simulated(ref)) {
      simulated.insert({ref.run, ref.point});
      return;
    }
    links.insert(clean_text(workspace.option_text(ref, "link"), 32));
  };
  for (const auto& panel : chart.refs) {
    for (const std::vector<PointRef>& series : panel) std::ranges::for_each(series, look_at);
  }
  if (of_selected && workspace.selected_point()) look_at(*workspace.selected_point());
  // A script's own figure says it already.
  if (modelled.empty() || chart.spec.title.find("modelled") != std::string::npos) return;
  const bool whole = modelled.size() == all.size();
  chart.spec.title += fmt::format("{}{}", chart.spec.title.empty() ? "" : " ",
                                  !whole                                ? "(some modelled)"
                                  : simulated.size() == modelled.size() ? "(modelled)"
                                  : simulated.empty()                   ? "(communication modelled)"
                                                      : "(all or communication modelled)");
  if (!simulated.empty())
    add_note(chart,
             fmt::format("Modelled: {} of {} points were simulated by a plan; nothing of them "
                         "was measured.",
                         simulated.size(), all.size()));
  if (links.empty()) return;
  const std::string who =
      modelled.size() - simulated.size() == all.size()
          ? ""
          : fmt::format("{} of {} points: ", modelled.size() - simulated.size(), all.size());
  add_note(chart,
           fmt::format("Modelled: {}one rank of a larger world ran; memory and computation are "
                       "measured, times of communication are modelled from link = {}.",
                       who, fmt::join(links, ", ")));
}

bool has_zero_axes(const records::PlotSpec& spec) {
  return std::ranges::any_of(spec.panels, [](const records::PlotPanel& panel) {
    const bool dots = panel.kind == records::PlotKind::Scatter;
    return (dots || panel.kind == records::PlotKind::Lines) && !panel.y.log_scale && !panel.y.min;
  });
}

void cut_axes(records::PlotSpec& spec) {
  const auto cut = [](records::PlotAxis& axis, double low, double high) {
    if (axis.log_scale || axis.min || !(low > 0) || !(high > low)) return;
    axis.min = low - 0.06 * (high - low);
    axis.max = high + 0.08 * (high - low);
  };
  for (records::PlotPanel& panel : spec.panels) {
    const bool dots = panel.kind == records::PlotKind::Scatter;
    if (!dots && panel.kind != records::PlotKind::Lines) continue;
    double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
    for (const records::PlotSeries& series : panel.series) {
      for (size_t i = 0; i < series.y.size(); ++i) {
        if (!series.y[i] || std::isnan(series.x[i])) continue;
        x_low = std::min(x_low, series.x[i]);
        x_high = std::max(x_high, series.x[i]);
        const auto end = [&](const records::MaybeNumbers& ends) {
          return i < ends.size() && ends[i] ? *ends[i] : *series.y[i];
        };
        y_low = std::min({y_low, *series.y[i], end(series.low)});
        y_high = std::max({y_high, *series.y[i], end(series.high)});
      }
    }
    cut(panel.y, y_low, y_high);
    if (dots && panel.x.categories.empty()) cut(panel.x, x_low, x_high);
  }
}

std::string first_points_note(size_t count, size_t all) {
  return fmt::format("The first {} of {} points; a filter chooses others.", count, all);
}

void add_note(Chart& chart, std::string note) {
  if (!chart.spec.note.empty()) note += " " + chart.spec.note;
  chart.spec.note = std::move(note);
}

Unit memory_unit(double bytes) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  if (bytes >= 2 * kGiB) return {"GiB", 1 / kGiB};
  if (bytes >= kMiB) return {"MiB", 1 / kMiB};
  return {"KiB", 1.0 / 1024};
}

Unit time_unit(double ms) {
  if (ms >= 20000) return {"s", 1e-3};
  if (ms < 0.2) return {"us", 1e3};
  return {"ms", 1};
}

}  // namespace moonshard::viewer
