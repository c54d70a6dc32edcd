#include "viewer/render/plot_renderer.h"

#include <algorithm>
#include <cmath>

#include <imgui_internal.h>
#include <implot.h>

#include "viewer/render/plot_parts.h"
#include "viewer/render/plot_text.h"

namespace moonshard::viewer {
namespace {

using records::PlotKind;

void push_plot_style(const PreparedPanel& panel) {
  const float unit = font_unit() / UiContext::kFontSize;
  ImPlot::PushStyleVar(ImPlotStyleVar_PlotPadding, ImVec2(2 * unit, 2 * unit));
  ImPlot::PushStyleVar(ImPlotStyleVar_LabelPadding, ImVec2(6 * unit, 5 * unit));
  ImPlot::PushStyleVar(ImPlotStyleVar_MajorTickLen, ImVec2(5 * unit, 5 * unit));
  ImPlot::PushStyleVar(ImPlotStyleVar_MinorTickLen, ImVec2(3 * unit, 3 * unit));
  ImPlot::PushStyleVar(ImPlotStyleVar_PlotMinSize, ImVec2(40 * unit, 40 * unit));
  // ImPlot labels the minor steps of a linear axis as well; on a log axis they only fill in.
  ImPlot::PushStyleVar(ImPlotStyleVar_MinorAlpha, panel.y_log || panel.x_log ? 0.35f : 1.0f);
}

constexpr int kNumPlotStyles = 6;

void draw_data(const PreparedPanel& panel, ValueText values, const HiddenNames& hidden,
               const UiStyle& style) {
  if (is_bars(panel.kind)) return draw_bars(panel, values, hidden, style);
  if (panel.kind == PlotKind::Lines) return draw_lines(panel, hidden, style);
  if (panel.kind == PlotKind::StackedArea) return draw_area(panel, hidden, style);
  if (panel.kind == PlotKind::Scatter) return draw_scatter(panel, hidden, style);
  draw_heat_map(panel, style);
}

bool is_empty(const PreparedPanel& panel) {
  const auto no_points = [](const PreparedSeries& s) { return s.x.empty() && s.missing.empty(); };
  return std::ranges::all_of(panel.series, no_points);
}

// What is drawn above the data inside the plot, and the y range that leaves room for it.
struct Headroom {
  ValueText values = ValueText::None;
  float ruler = 0;
  Range y_range;
};

Headroom plan_headroom(const PreparedPanel& panel, ImVec2 area, float ruler) {
  Headroom plan;
  const bool bars = is_bars(panel.kind);
  const float along = panel.horizontal ? area.y : area.x;
  float above = panel.kind == PlotKind::HeatMap ? 0 : 0.9f * font_unit();
  if (bars) {
    const float bar_pixels = static_cast<float>(panel.bar_width / panel.x_range.size()) * along;
    plan.values = choose_value_text(panel, bar_pixels, above);
    // On a low plot values would leave no room for their bars; names of stacks must stay.
    if (panel.stack_names.empty() && above > 0.4f * (panel.horizontal ? area.x : area.y)) {
      plan.values = ValueText::None;
      above = 0.8f * font_unit();
    }
  }
  plan.ruler = panel.bands.empty() ? 0 : ruler;
  if (plan.ruler > 0) above = plan.ruler + 0.5f * font_unit();
  if (panel.fixed_top && plan.ruler == 0) above = 0;
  const float pixels = panel.horizontal ? area.x : area.y;
  // Values of negative bars stand below them.
  const bool both_sides = bars && panel.y_range.min < 0 && plan.values != ValueText::None;
  plan.y_range = both_sides ? with_room_around(panel.y_range, pixels, above)
                            : with_room_above(panel.y_range, pixels, above, panel.y_log);
  return plan;
}

// An upright line at the place that another plot points to.
void draw_cursor(const PlotState& state, const UiStyle& style) {
  if (!state.cursor_x) return;
  const ImVec2 min = ImPlot::GetPlotPos(), size = ImPlot::GetPlotSize();
  const float x = ImPlot::PlotToPixels(*state.cursor_x, 0.0).x;
  if (x < min.x || x > min.x + size.x) return;
  ImGui::GetWindowDrawList()->AddLine(ImVec2(x, min.y), ImVec2(x, min.y + size.y),
                                      with_alpha(style.colors().text, 0.6f), 0.08f * font_unit());
}

// Everything between BeginPlot and EndPlot. True: the user asked by a double click to see the whole
// range again.
bool draw_inside(const PreparedPanel& panel, size_t index, const PanelFrame& frame,
                 const Headroom& plan, const HiddenNames& hidden, PlotState& state,
                 const UiStyle& style, bool interactive) {
  ImDrawList* window_draw = ImGui::GetWindowDrawList();
  draw_band_shades(panel, style);
  draw_data(panel, plan.values, hidden, style);
  draw_band_ruler(panel, plan.ruler, style);
  TextPlacer placer;
  draw_point_texts(panel, placer, hidden, style);
  block_data(panel, placer, hidden);
  draw_references(panel, placer, hidden, style);
  const ImVec2 plot_min = ImPlot::GetPlotPos(), plot_size = ImPlot::GetPlotSize();
  if (has_named_x(panel)) {
    draw_category_labels(window_draw, frame.labels, plot_min.y + plot_size.y, style.colors().text);
    const ImVec2 label(plot_min.x + plot_size.x / 2,
                       frame.min.y + frame.size.y - ImGui::GetTextLineHeight() * 0.6f);
    draw_text_centered(window_draw, label, style.colors().text,
                       fit_label(panel.x_label, plot_size.x));
  }
  if (panel.kind == PlotKind::HeatMap) {
    draw_color_bar(panel, ImVec2(plot_min.x + plot_size.x, plot_min.y), plot_size.y, style);
  }
  if (is_empty(panel)) {
    draw_text_centered(window_draw, plot_min + plot_size * 0.5f, style.colors().muted_text,
                       "no data");
  }
  if (!interactive) return false;
  std::vector<PanelHit> marked;
  for (const PlotHit& mark : state.marked) {
    if (mark.panel == index) marked.push_back(mark.at);
  }
  draw_marked(panel, marked, hidden, style);
  draw_cursor(state, style);
  if (const std::optional<PanelHit> hit = draw_hover_text(panel, hidden, style)) {
    state.hovered = PlotHit{index, *hit};
  }
  if (!ImPlot::IsPlotHovered()) return false;
  state.hovered_x = ImPlot::GetPlotMousePos().x;
  const ImVec2 dragged = ImGui::GetIO().MouseClickedPos[0] - ImGui::GetMousePos();
  if (ImGui::IsMouseReleased(0) && ImLengthSqr(dragged) < 0.1f * font_unit() * font_unit())
    state.clicked = true;
  return ImGui::IsMouseDoubleClicked(0);
}

// Draws one panel; true as draw_inside.
bool draw_panel(const PreparedPanel& panel, size_t index, const PanelFrame& frame, bool own_legend,
                HiddenNames& hidden, PlotState& state, const UiStyle& style, bool interactive) {
  float y = frame.min.y;
  const float bottom = frame.min.y + frame.size.y;
  title_block(panel.title, ImVec2(frame.min.x, y), frame.size.x, style, 1.0f,
              ImGui::GetWindowDrawList());
  y += frame.title;
  if (own_legend) {
    draw_legend(panel.legend, ImVec2(frame.min.x, y), frame.size, style, interactive, hidden);
    y += legend_height(panel.legend, frame.size.x, frame.size.y);
  }
  const bool named_axis = has_named_x(panel);
  const ImVec2 size(frame.size.x - color_bar_width(panel),
                    bottom - y - (named_axis ? frame.footer : 0));
  if (size.x < 3 * font_unit() || size.y < 3 * font_unit())
    return false;  // no room for anything readable

  const float axis = !panel.horizontal  ? kAxisWidthEm * font_unit()
                     : frame.names <= 0 ? 0.6f * font_unit()
                                        : names_width(panel, frame.names);
  ImVec2 area(size.x - axis, size.y - (named_axis ? 0 : 2.5f * font_unit()));
  if (has_upper_axis(panel, area.y)) area.y -= 2.5f * font_unit();
  const Headroom plan = plan_headroom(panel, area, frame.ruler);
  ImPlotFlags flags = ImPlotFlags_NoLegend | ImPlotFlags_NoTitle | ImPlotFlags_NoFrame |
                      ImPlotFlags_NoMouseText | ImPlotFlags_NoMenus;
  if (!interactive) flags |= ImPlotFlags_NoInputs;
  ImGui::SetCursorScreenPos(ImVec2(frame.min.x, y));
  push_plot_style(panel);
  bool refit = false;
  if (ImPlot::BeginPlot("##plot", size, flags)) {
    setup_axes(panel, plan.y_range, area, frame.names,
               state.fit || !interactive ? ImPlotCond_Always : ImPlotCond_Once);
    refit = draw_inside(panel, index, frame, plan, hidden, state, style, interactive);
    ImPlot::EndPlot();
  }
  ImPlot::PopStyleVar(kNumPlotStyles);
  return refit;
}

// Small text below the picture, wrapped; returns its height.
float draw_note(const PreparedPlot& plot, ImVec2 min, ImVec2 size, const UiStyle& style) {
  if (plot.note.empty()) return 0;
  push_small_font();
  const std::vector<std::string> lines = note_lines(plot.note, size.x);
  const float line_height = ImGui::GetTextLineHeight() * kNoteLine;
  const float height = static_cast<float>(lines.size()) * line_height;
  float y = min.y + size.y - height;
  for (const std::string& line : lines) {
    ImGui::GetWindowDrawList()->AddText(ImVec2(min.x, std::round(y)), style.colors().muted_text,
                                        line.data(), line.data() + line.size());
    y += line_height;
  }
  ImGui::PopFont();
  return note_height(plot.note, size.x);
}

}  // namespace

void draw_plot(const PreparedPlot& plot, PlotState& state, ImVec2 size, const UiStyle& style,
               bool interactive) {
  if (plot.panels.empty()) return;
  ImDrawList* draw = ImGui::GetWindowDrawList();
  const ImVec2 origin = ImGui::GetCursorScreenPos();
  draw->AddRectFilled(origin, origin + size, style.colors().background);
  state.hidden.resize(plot.panels.size());

  const float margin = 0.8f * font_unit();
  ImVec2 min = origin + ImVec2(margin, margin);
  ImVec2 rest = size - ImVec2(2 * margin, 2 * margin);
  const auto take_top = [&](float height) {
    min.y += height;
    rest.y -= height;
  };
  take_top(title_block(plot.title, min, rest.x, style, 1.18f, draw));
  if (plot.shared_legend) {
    draw_legend(plot.legend, min, ImVec2(rest.x, size.y), style, interactive, state.hidden[0]);
    take_top(legend_height(plot.legend, rest.x, size.y));
  }
  rest.y -= draw_note(plot, min, rest, style);
  bool refit = false;
  state.hovered.reset();
  state.hovered_x.reset();
  state.clicked = false;
  const std::vector<PanelFrame> frames = layout_panels(plot, min, rest, style);
  for (size_t i = 0; i < plot.panels.size(); ++i) {
    HiddenNames& hidden = state.hidden[plot.shared_legend ? 0 : i];
    ImGui::PushID(static_cast<int>(i));
    refit |= draw_panel(plot.panels[i], i, frames[i], !plot.shared_legend, hidden, state, style,
                        interactive);
    ImGui::PopID();
  }
  state.fit = refit;  // applies from the next frame on
  // One item of the figure's size, so that the caller's layout goes on below it.
  ImGui::SetCursorScreenPos(origin);
  ImGui::Dummy(size);
}

}  // namespace moonshard::viewer
