#include "viewer/widgets/colors.h"

#include <algorithm>
#include <array>

#include <implot.h>

namespace moonshard::viewer {
namespace {

constexpr ImU32 rgb(unsigned value) {
  return IM_COL32((value >> 16) & 0xFF, (value >> 8) & 0xFF, value & 0xFF, 0xFF);
}

// Okabe and Ito's set, strongest contrast first. Black and yellow, which vanish on a dark or a
// white background, give way to a grey and a darker yellow. The second half follows Tol's muted
// set: for stacks of many owners, where order and borders help as well.
constexpr std::array<ImU32, kNumSeriesColors> kLightSeries = {
    rgb(0x0072B2), rgb(0xD55E00), rgb(0x009E73), rgb(0xE69F00), rgb(0xCC79A7), rgb(0x56B4E9),
    rgb(0x7F7F7F), rgb(0xB8A800), rgb(0x332288), rgb(0x882255), rgb(0x44AA99), rgb(0xDDCC77),
    rgb(0x8A8A2B), rgb(0x7A4A1E), rgb(0xAA4499), rgb(0xC4C4C4)};
constexpr std::array<ImU32, kNumSeriesColors> kDarkSeries = {
    rgb(0x3D9BDC), rgb(0xEE7733), rgb(0x22B88C), rgb(0xE8AC1C), rgb(0xD98DB8), rgb(0x8CCBF2),
    rgb(0xA8A8A8), rgb(0xF0E442), rgb(0x7D6BD6), rgb(0xB8406F), rgb(0x5CC4B3), rgb(0xE5D890),
    rgb(0xB3B347), rgb(0xA87445), rgb(0xC468B4), rgb(0x6E6E6E)};

struct NamedColor {
  size_t index;
  std::array<std::string_view, 4> names;  // empty beyond the last
};

// A name has the same colour in every picture. Engines may share colours with owners of memory and
// phases of a step: they are never series of one panel.
constexpr NamedColor kNamedColors[] = {
    // engines, with the names of the profiling suites
    {6, {"none", "no_dp", "no_dp_single", "vanilla"}},
    {1, {"materialize", "materialized"}},
    {0, {"ghost", "ghost_fsdp", "ghost_clip"}},
    {3, {"flash", "flash_fsdp", "flash_clip"}},
    {2, {"bookkeeping", "bookkeeping_fsdp", "ghost_bookkeeping"}},
    {4, {"flash_bookkeeping", "flash_bookkeeping_fsdp", "flash_clip_bookkeeping"}},
    {5, {"auto"}},
    // ways to shard
    {1, {"zero2"}},
    {0, {"zero3"}},
    {1, {"ddp"}},
    {0, {"fsdp"}},
    {2, {"zero2_replicated"}},
    // owners of memory
    {0, {"parameters"}},
    {12, {"gathered_parameters"}},
    {6, {"cast_parameters", "other"}},
    {5, {"gradients"}},
    {8, {"optimizer_state"}},
    {2, {"activations"}},
    {14, {"output_gradients"}},
    {11, {"engine_kept"}},
    {7, {"norm_samples"}},
    {1, {"temporaries_ggt"}},
    {3, {"temporaries_aat"}},
    {9, {"engine_temporaries"}},
    {4, {"communication"}},
    {13, {"data"}},
    {10, {"step_temporaries"}},
    {15, {"rest"}},
    // phases of a step; data is above
    {14, {"gather"}},
    {0, {"forward"}},
    {6, {"graph"}},
    {5, {"backward"}},
    {3, {"norms"}},
    {12, {"noise"}},
    {4, {"norm_reduce"}},
    {7, {"clip_factors"}},
    {2, {"clipped_sum"}},
    {8, {"second_backward"}},
    {9, {"reduce"}},
    {10, {"update"}},
    {1, {"optimizer"}},
    // shares of a step
    {0, {"compute"}},
    {4, {"exposed communication"}},
};

// Light to dark, one rise of darkness without a turn of hue that some eyes miss.
constexpr std::array<ImU32, 6> kHeatStops = {rgb(0xFFF7D6), rgb(0xCFE8B4), rgb(0x7CCBB5),
                                             rgb(0x3A9FC0), rgb(0x2A66A8), rgb(0x1B2C6B)};

constexpr PlotColors kLightPlot = {rgb(0xFFFFFF), rgb(0x1A1A1A), rgb(0x5A5A5A), rgb(0xDEDEDE),
                                   rgb(0x707070)};
constexpr PlotColors kDarkPlot = {rgb(0x17191E), rgb(0xE6E6E6), rgb(0xA0A4AB), rgb(0x34383F),
                                  rgb(0x6A707A)};

ImVec4 vec(ImU32 color) {
  return ImGui::ColorConvertU32ToFloat4(color);
}

void set_window_colors(ImGuiStyle& style, Theme theme) {
  theme == Theme::Dark ? ImGui::StyleColorsDark(&style) : ImGui::StyleColorsLight(&style);
  ImVec4* colors = style.Colors;
  const PlotColors& plot = plot_colors(theme);
  const ImU32 accent = series_color(0, theme);
  const bool dark = theme == Theme::Dark;
  colors[ImGuiCol_Text] = vec(plot.text);
  colors[ImGuiCol_TextDisabled] = vec(plot.muted_text);
  colors[ImGuiCol_WindowBg] = vec(plot.background);
  colors[ImGuiCol_PopupBg] = vec(dark ? rgb(0x22252B) : rgb(0xFFFFFF));
  colors[ImGuiCol_Border] = vec(dark ? rgb(0x30343B) : rgb(0xC9CCD1));
  colors[ImGuiCol_FrameBg] = vec(dark ? rgb(0x24272E) : rgb(0xEEF0F3));
  colors[ImGuiCol_FrameBgHovered] = vec(with_alpha(accent, 0.30f));
  colors[ImGuiCol_FrameBgActive] = vec(with_alpha(accent, 0.45f));
  colors[ImGuiCol_MenuBarBg] = vec(dark ? rgb(0x1D2026) : rgb(0xF3F4F6));
  colors[ImGuiCol_TitleBg] = colors[ImGuiCol_TitleBgActive] = colors[ImGuiCol_MenuBarBg];
  colors[ImGuiCol_Tab] = colors[ImGuiCol_TabDimmed] = colors[ImGuiCol_MenuBarBg];
  colors[ImGuiCol_TabSelected] = colors[ImGuiCol_TabDimmedSelected] = vec(plot.background);
  colors[ImGuiCol_TabHovered] = vec(with_alpha(accent, 0.35f));
  colors[ImGuiCol_TabSelectedOverline] = vec(accent);
  colors[ImGuiCol_Header] = vec(with_alpha(accent, 0.28f));
  colors[ImGuiCol_HeaderHovered] = vec(with_alpha(accent, 0.18f));
  colors[ImGuiCol_HeaderActive] = vec(with_alpha(accent, 0.40f));
  colors[ImGuiCol_Button] = vec(with_alpha(accent, 0.25f));
  colors[ImGuiCol_ButtonHovered] = vec(with_alpha(accent, 0.40f));
  colors[ImGuiCol_ButtonActive] = vec(with_alpha(accent, 0.55f));
  colors[ImGuiCol_TableHeaderBg] = vec(dark ? rgb(0x22252B) : rgb(0xEEF0F3));
  colors[ImGuiCol_TableBorderLight] = vec(dark ? rgb(0x272A31) : rgb(0xE3E5E9));
  colors[ImGuiCol_TableBorderStrong] = vec(dark ? rgb(0x30343B) : rgb(0xC9CCD1));
  colors[ImGuiCol_TableRowBgAlt] = vec(dark ? IM_COL32(255, 255, 255, 6) : IM_COL32(0, 0, 0, 8));
  colors[ImGuiCol_DockingEmptyBg] = vec(plot.background);
}

void set_plot_colors(ImPlotStyle& style, Theme theme) {
  const PlotColors& plot = plot_colors(theme);
  style.Colors[ImPlotCol_FrameBg] = ImVec4(0, 0, 0, 0);
  style.Colors[ImPlotCol_PlotBg] = vec(plot.background);
  style.Colors[ImPlotCol_PlotBorder] = vec(plot.border);
  style.Colors[ImPlotCol_AxisText] = vec(plot.text);
  style.Colors[ImPlotCol_AxisGrid] = vec(plot.grid);
  style.Colors[ImPlotCol_AxisTick] = vec(plot.border);
  style.Colors[ImPlotCol_InlayText] = vec(plot.text);
  style.Colors[ImPlotCol_AxisBgHovered] = vec(with_alpha(series_color(0, theme), 0.15f));
  style.Colors[ImPlotCol_AxisBgActive] = vec(with_alpha(series_color(0, theme), 0.25f));
}

}  // namespace

void apply_theme(Theme theme, float density) {
  ImGuiStyle& style = ImGui::GetStyle();
  const float font_size = style.FontSizeBase;
  style = ImGuiStyle();
  style.FontSizeBase = font_size;
  style.WindowPadding = ImVec2(10, 8);
  style.FramePadding = ImVec2(8, 4);
  style.CellPadding = ImVec2(7, 3);
  style.ItemSpacing = ImVec2(8, 6);
  style.WindowBorderSize = 0;
  style.FrameRounding = style.TabRounding = style.PopupRounding = style.GrabRounding = 3;
  style.WindowRounding = 0;
  style.DockingSeparatorSize = 3;
  set_window_colors(style, theme);
  style.ScaleAllSizes(density);
  style.FontScaleDpi = density;
  ImPlot::GetStyle() = ImPlotStyle();
  set_plot_colors(ImPlot::GetStyle(), theme);
}

const PlotColors& plot_colors(Theme theme) {
  return theme == Theme::Light ? kLightPlot : kDarkPlot;
}

ImU32 series_color(size_t index, Theme theme) {
  return (theme == Theme::Light ? kLightSeries : kDarkSeries)[index % kNumSeriesColors];
}

namespace {

const NamedColor* find_named_color(std::string_view name) {
  // "optimizer state" and "temporaries ggT" are the same names as they are shown.
  const auto same = [](char a, char b) {
    const auto plain = [](char c) {
      return c == ' ' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    return plain(a) == plain(b);
  };
  for (const NamedColor& known : kNamedColors) {
    for (const std::string_view text : known.names) {
      if (!text.empty() && std::equal(name.begin(), name.end(), text.begin(), text.end(), same))
        return &known;
    }
  }
  return nullptr;
}

}  // namespace

std::optional<size_t> named_series_color(std::string_view name) {
  const NamedColor* found = find_named_color(name);
  return found ? std::optional<size_t>(found->index) : std::nullopt;
}

bool same_named_color(std::string_view a, std::string_view b) {
  const NamedColor* found = find_named_color(a);
  return found != nullptr && found == find_named_color(b);
}

ImU32 heat_color(double share) {
  const double place = std::clamp(share, 0.0, 1.0) * static_cast<double>(kHeatStops.size() - 1);
  const size_t below = std::min(static_cast<size_t>(place), kHeatStops.size() - 2);
  return mix(kHeatStops[below], kHeatStops[below + 1],
             static_cast<float>(place - static_cast<double>(below)));
}

ImU32 readable_text_on(ImU32 background) {
  const ImVec4 c = vec(background);
  const float light = 0.299f * c.x + 0.587f * c.y + 0.114f * c.z;
  return light > 0.55f ? rgb(0x1A1A1A) : rgb(0xFFFFFF);
}

ImU32 status_color(std::string_view status, Theme theme) {
  if (status == "ok") return series_color(2, theme);
  if (status == "oom" || status == "timeout") return series_color(3, theme);
  if (status == "failed" || status == "unreadable") return series_color(1, theme);
  if (status == "running") return series_color(0, theme);
  if (status == "interrupted") return series_color(4, theme);
  return plot_colors(theme).muted_text;
}

ImU32 with_alpha(ImU32 color, float alpha) {
  const auto byte = static_cast<ImU32>(alpha * 255.0f + 0.5f);
  return (color & ~IM_COL32_A_MASK) | (byte << IM_COL32_A_SHIFT);
}

ImU32 mix(ImU32 first, ImU32 second, float share) {
  const ImVec4 a = vec(first), b = vec(second);
  const auto part = [share](float from, float to) { return from + (to - from) * share; };
  return ImGui::ColorConvertFloat4ToU32(
      ImVec4(part(a.x, b.x), part(a.y, b.y), part(a.z, b.z), part(a.w, b.w)));
}

}  // namespace moonshard::viewer
