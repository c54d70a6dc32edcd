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
  float title = 0;   // height of the panel's title; equal in a row
  float names = 0;   // the most that texts beside the plot take; 0: the panel at its left has them
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
  const ImVec2 area(size.x - axis, size.y - (named_axis ? 0 : 2.5f * font_unit()));
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

// The least height of one panel in which bars, words and axes keep apart.
float readable_panel_height(const PreparedPlot& plot, const PreparedPanel& panel, float width,
                            const UiStyle& style) {
  constexpr float kPlotEm = 8, kBarEm = 1.2f, kAxisEm = 2.5f;
  float height = kPlotEm * font_unit();
  if (panel.horizontal) {
    const bool beside = panel.kind == PlotKind::Bars && panel.bar_width > 0;  // else on each other
    // As many bars in each category as the fullest of them has.
    const float bars =
        beside ? std::max(1.0f, std::round(0.82f / static_cast<float>(panel.bar_width))) : 1.0f;
    height = std::max(2.5f * font_unit(), kBarEm * font_unit() * bars *
                                              static_cast<float>(panel.categories.size()) * 1.12f);
    if (plot.panels.size() == 1) height = std::max(height, kPlotEm * font_unit());
  }
  height += title_block(panel.title, {}, width, style, 1.0f, nullptr);
  if (!plot.shared_legend) height += legend_height(panel.legend, width, 1e5f);
  const float axis = kAxisWidthEm * font_unit();
  height += has_named_x(panel) ? layout_category_labels(panel.categories, width - axis, axis).height
                               : kAxisEm * font_unit();
  return height + 0.9f * font_unit();
}

std::vector<float> readable_row_heights(const PreparedPlot& plot, float width,
                                        const UiStyle& style) {
  const size_t columns = std::max<size_t>(plot.columns, 1);
  std::vector<float> rows((plot.panels.size() + columns - 1) / columns, 0.0f);
  for (size_t i = 0; i < plot.panels.size(); ++i) {
    float& row = rows[i / columns];
    row = std::max(row, readable_panel_height(plot, plot.panels[i], width, style));
  }
  return rows;
}

// Lying bars of several figures of the same points stand in one row: names are needed only once.
bool rows_share_names(const PreparedPlot& plot, size_t columns) {
  if (columns < 2 || plot.panels.size() % columns != 0) return false;
  for (size_t i = 0; i < plot.panels.size(); ++i) {
    const PreparedPanel& first = plot.panels[i - i % columns];
    if (!plot.panels[i].horizontal || plot.panels[i].categories != first.categories) return false;
  }
  return true;
}

struct Column {
  float left = 0, width = 0;
};

std::vector<Column> layout_columns(const PreparedPlot& plot, float width, float gap, float& names) {
  const auto count = static_cast<float>(plot.columns);
  names = 0;
  if (rows_share_names(plot, plot.columns)) {
    const float limit = names_limit(width * 0.8f);
    float widest = 0;
    for (const PreparedPanel& panel : plot.panels) {
      widest = std::max(widest, names_width(panel, limit));
    }
    names = widest;
  }
  const float each = (width - names - gap * (count - 1)) / count;
  std::vector<Column> columns;
  float left = 0;
  for (size_t c = 0; c < plot.columns; ++c) {
    columns.push_back({left, each + (c == 0 ? names : 0)});
    left += columns.back().width + gap;
  }
  return columns;
}

// Splits the figure into columns and rows; the plots of one row end at the same height. Rows of
// lying bars are as high as their number of bars asks for.
std::vector<PanelFrame> layout_panels(const PreparedPlot& plot, ImVec2 min, ImVec2 size,
                                      const UiStyle& style) {
  const ImVec2 gap(1.2f * font_unit(), 0.9f * font_unit());
  float shared_names = 0;
  const std::vector<Column> columns = layout_columns(plot, size.x, gap.x, shared_names);
  std::vector<float> heights = readable_row_heights(plot, columns.back().width, style);
  const bool lying = std::ranges::any_of(plot.panels, &PreparedPanel::horizontal);
  if (!lying) std::ranges::fill(heights, 1.0f);
  const float room = size.y - gap.y * static_cast<float>(heights.size() - 1);
  float sum = 0;
  for (const float height : heights) sum += height;
  std::vector<PanelFrame> frames;
  std::vector<float> footers(heights.size(), 0.0f), titles(heights.size(), 0.0f);
  float top = min.y;
  for (size_t i = 0; i < plot.panels.size(); ++i) {
    const size_t row = i / plot.columns, column = i % plot.columns;
    if (column == 0 && row > 0) top += heights[row - 1] / sum * room + gap.y;
    PanelFrame frame;
    frame.min = ImVec2(min.x + columns[column].left, top);
    frame.size = ImVec2(columns[column].width, heights[row] / sum * room);
    const PreparedPanel& panel = plot.panels[i];
    frame.names = shared_names <= 0 ? names_limit(frame.size.x - color_bar_width(panel))
                  : column == 0     ? names_limit(size.x * 0.8f)
                                    : 0;
    if (shared_names > 0 && column == 0) {
      // Plots of one column begin at the same place, however long the names of a row are.
      const float inset = shared_names - names_width(panel, frame.names);
      frame.min.x += inset;
      frame.size.x -= inset;
    }
    titles[row] =
        std::max(titles[row], title_block(panel.title, {}, frame.size.x, style, 1.0f, nullptr));
    if (has_named_x(panel)) {
      const float axis = kAxisWidthEm * font_unit();
      frame.labels = layout_category_labels(
          panel.categories, frame.size.x - axis - color_bar_width(panel), axis * 0.85f);
      const float label = panel.x_label.empty() ? 0 : 1.35f * ImGui::GetTextLineHeight();
      footers[row] = std::max(footers[row], frame.labels.height + label);
    }
    frames.push_back(std::move(frame));
  }
  // Plots that are compared must not differ in what stands above their data.
  float ruler = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    PanelFrame& frame = frames[i];
    frame.footer = footers[i / plot.columns];
    frame.title = titles[i / plot.columns];
    const ImVec2 area(frame.size.x - kAxisWidthEm * font_unit(),
                      frame.size.y - frame.title - 2.5f * font_unit());
    ruler = std::max(ruler, band_ruler_height(plot.panels[i], area));
  }
  for (PanelFrame& frame : frames) frame.ruler = ruler;
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
  constexpr float kNarrowestEm = 13, kNarrowestBarsEm = 10;
  // Rows that share their names stay rows: all of their panels side by side, or one by one.
  if (plot.panels.size() > asked && asked > 1) {
    if (rows_share_names(plot, asked)) {
      return width >= kNarrowestBarsEm * font_unit() * static_cast<float>(asked) ? asked : 1;
    }
  }
  const auto fitting = static_cast<size_t>(std::max(width / (kNarrowestEm * font_unit()), 1.0f));
  return std::clamp<size_t>(std::min(asked, fitting), 1, std::max<size_t>(plot.panels.size(), 1));
}

float readable_height(const PreparedPlot& plot, float width, const UiStyle& style) {
  const size_t columns = std::max<size_t>(plot.columns, 1);
  const float cell =
      (width - 1.6f * font_unit()) / static_cast<float>(columns) - 1.2f * font_unit();
  float sum = title_block(plot.title, {}, width, style, 1.18f, nullptr) + 1.6f * font_unit();
  for (const float row : readable_row_heights(plot, cell, style)) sum += row + 0.9f * font_unit();
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
