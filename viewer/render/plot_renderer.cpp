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

// Width of the y axis with its label, before ImPlot has measured it. Only the choice between level
// and turned text depends on it.
constexpr float kAxisWidthEm = 5.0f;

struct PanelFrame {
  ImVec2 min, size;  // the panel's share of the figure
  float footer = 0;  // below the plot: category names and x label; equal for all panels
  float ruler = 0;   // of bands on top of the plot; equal for all panels
  CategoryLabels labels;
};

// Height of a centred title that may wrap; draws it when draw is given.
float title_block(const std::string& text, ImVec2 top_left, float width, const UiStyle& style,
                  float factor, ImDrawList* draw) {
  if (text.empty()) return 0;
  ImGui::PushFont(style.bold, ImGui::GetStyle().FontSizeBase * factor);
  std::vector<std::string> lines = wrap_text(text, width, 3);
  if (lines.empty()) lines = {fit_text(text, width)};
  const float line_height = ImGui::GetTextLineHeight();
  for (size_t i = 0; draw && i < lines.size(); ++i) {
    const ImVec2 center(top_left.x + width / 2,
                        top_left.y + (static_cast<float>(i) + 0.5f) * line_height);
    draw_text_centered(draw, center, style.colors().text, lines[i]);
  }
  ImGui::PopFont();
  return (static_cast<float>(lines.size()) + 0.35f) * line_height;
}

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
  y += title_block(panel.title, ImVec2(frame.min.x, y), frame.size.x, style, 1.0f,
                   ImGui::GetWindowDrawList());
  if (own_legend) {
    draw_legend(panel.legend, ImVec2(frame.min.x, y), frame.size, style, interactive, hidden);
    y += legend_height(panel.legend, frame.size.x, frame.size.y);
  }
  const bool named_axis = has_named_x(panel);
  const ImVec2 size(frame.size.x - color_bar_width(panel),
                    bottom - y - (named_axis ? frame.footer : 0));
  if (size.x < 3 * font_unit() || size.y < 3 * font_unit())
    return false;  // no room for anything readable

  const float axis = panel.horizontal ? names_width(panel, size.x) : kAxisWidthEm * font_unit();
  const ImVec2 area(size.x - axis, size.y - (named_axis ? 0 : 2.5f * font_unit()));
  const Headroom plan = plan_headroom(panel, area, frame.ruler);
  ImPlotFlags flags = ImPlotFlags_NoLegend | ImPlotFlags_NoTitle | ImPlotFlags_NoFrame |
                      ImPlotFlags_NoMouseText | ImPlotFlags_NoMenus;
  if (!interactive) flags |= ImPlotFlags_NoInputs;
  ImGui::SetCursorScreenPos(ImVec2(frame.min.x, y));
  push_plot_style(panel);
  bool refit = false;
  if (ImPlot::BeginPlot("##plot", size, flags)) {
    setup_axes(panel, plan.y_range, area,
               state.fit || !interactive ? ImPlotCond_Always : ImPlotCond_Once);
    refit = draw_inside(panel, index, frame, plan, hidden, state, style, interactive);
    ImPlot::EndPlot();
  }
  ImPlot::PopStyleVar(kNumPlotStyles);
  return refit;
}

// Splits the figure into equal columns and rows; the plots of one row end at the same height.
std::vector<PanelFrame> layout_panels(const PreparedPlot& plot, ImVec2 min, ImVec2 size) {
  const size_t num_rows = (plot.panels.size() + plot.columns - 1) / plot.columns;
  const auto columns = static_cast<float>(plot.columns), rows = static_cast<float>(num_rows);
  const ImVec2 gap(1.2f * font_unit(), 0.9f * font_unit());
  const ImVec2 cell((size.x - gap.x * (columns - 1)) / columns,
                    (size.y - gap.y * (rows - 1)) / rows);
  std::vector<PanelFrame> frames;
  std::vector<float> footers(num_rows, 0.0f);
  for (size_t i = 0; i < plot.panels.size(); ++i) {
    const size_t row = i / plot.columns, column = i % plot.columns;
    PanelFrame frame;
    frame.min = min + ImVec2(static_cast<float>(column) * (cell.x + gap.x),
                             static_cast<float>(row) * (cell.y + gap.y));
    frame.size = cell;
    const PreparedPanel& panel = plot.panels[i];
    if (has_named_x(panel)) {
      const float axis = kAxisWidthEm * font_unit();
      frame.labels = layout_category_labels(panel.categories,
                                            cell.x - axis - color_bar_width(panel), axis * 0.85f);
      const float label = panel.x_label.empty() ? 0 : 1.35f * ImGui::GetTextLineHeight();
      footers[row] = std::max(footers[row], frame.labels.height + label);
    }
    frames.push_back(std::move(frame));
  }
  // Plots that are compared must not differ in what stands above their data.
  float ruler = 0;
  for (const PreparedPanel& panel : plot.panels) {
    const float title = panel.title.empty() ? 0 : 1.35f;
    ruler =
        std::max(ruler, band_ruler_height(panel, ImVec2(cell.x - kAxisWidthEm * font_unit(),
                                                        cell.y - (2.5f + title) * font_unit())));
  }
  for (size_t i = 0; i < frames.size(); ++i) {
    frames[i].footer = footers[i / plot.columns];
    frames[i].ruler = ruler;
  }
  return frames;
}

// Small text below the picture, wrapped; returns its height.
float draw_note(const PreparedPlot& plot, ImVec2 min, ImVec2 size, const UiStyle& style) {
  if (plot.note.empty()) return 0;
  push_small_font();
  std::vector<std::string> lines = wrap_text(plot.note, size.x, 3);
  if (lines.empty()) lines = {fit_text(plot.note, size.x)};
  const float line_height = ImGui::GetTextLineHeight() * 1.15f;
  const float height = static_cast<float>(lines.size()) * line_height;
  float y = min.y + size.y - height;
  for (const std::string& line : lines) {
    ImGui::GetWindowDrawList()->AddText(ImVec2(min.x, std::round(y)), style.colors().muted_text,
                                        line.data(), line.data() + line.size());
    y += line_height;
  }
  ImGui::PopFont();
  return height + 0.45f * font_unit();
}

}  // namespace

size_t readable_columns(const PreparedPlot& plot, size_t asked, float width) {
  constexpr float kNarrowestEm = 13;
  const auto fitting = static_cast<size_t>(std::max(width / (kNarrowestEm * font_unit()), 1.0f));
  return std::clamp<size_t>(std::min(asked, fitting), 1, std::max<size_t>(plot.panels.size(), 1));
}

float readable_height(const PreparedPlot& plot, float width, const UiStyle& style) {
  constexpr float kPlotEm = 8, kBarEm = 1.2f, kAxisEm = 2.5f;
  const size_t columns = std::max<size_t>(plot.columns, 1);
  const float cell =
      (width - 1.6f * font_unit()) / static_cast<float>(columns) - 1.2f * font_unit();
  std::vector<float> rows((plot.panels.size() + columns - 1) / columns, 0.0f);
  for (size_t i = 0; i < plot.panels.size(); ++i) {
    const PreparedPanel& panel = plot.panels[i];
    const bool beside = panel.kind == PlotKind::Bars;  // else on each other
    const size_t bars = panel.categories.size() * (beside ? panel.series.size() : 1);
    float height = kPlotEm * font_unit();
    if (panel.horizontal)
      height = std::max(height, kBarEm * static_cast<float>(bars) * font_unit());
    height += title_block(panel.title, {}, cell, style, 1.0f, nullptr);
    if (!plot.shared_legend) height += legend_height(panel.legend, cell, 1e5f);
    const float axis = kAxisWidthEm * font_unit();
    height += has_named_x(panel)
                  ? layout_category_labels(panel.categories, cell - axis, axis).height
                  : kAxisEm * font_unit();
    rows[i / columns] = std::max(rows[i / columns], height + 0.9f * font_unit());
  }
  float sum = title_block(plot.title, {}, width, style, 1.18f, nullptr) + 1.6f * font_unit();
  for (const float row : rows) sum += row;
  if (plot.shared_legend) sum += legend_height(plot.legend, width, 1e5f);
  return sum + (plot.note.empty() ? 0 : 1.8f * font_unit());
}

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
  const std::vector<PanelFrame> frames = layout_panels(plot, min, rest);
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
