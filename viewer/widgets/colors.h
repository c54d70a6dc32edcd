// Colours of the window and of plots. Series colours are the Okabe-Ito set, which is safe for
// colour-blind readers, then a second set for stacks of many parts; status colours come
// from the same set. Engines, owners of memory and phases have fixed colours.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include <imgui.h>

namespace moonshard::viewer {

/// Light is for paper (PNG export), dark for the window.
enum class Theme { Light, Dark };

/// Colours of what a plot draws besides its series.
struct PlotColors {
  ImU32 background;
  ImU32 text;
  ImU32 muted_text;
  ImU32 grid;
  ImU32 border;
};

/// Sets the style of the current ImGui and ImPlot contexts, for a screen of the given pixel
/// density.
void apply_theme(Theme theme, float density);

const PlotColors& plot_colors(Theme theme);

/// Colour of the n-th series; repeats after the palette's end, where marker shapes still differ.
ImU32 series_color(size_t index, Theme theme);
inline constexpr size_t kNumSeriesColors = 16;

/// Index of the colour that a name has in every picture (engines, owners of memory, phases, ways to
/// shard); nothing for other names.
std::optional<size_t> named_series_color(std::string_view name);

/// Two names of one thing ("none", "vanilla"), which have one colour in one picture.
bool same_named_color(std::string_view a, std::string_view b);

/// Colour of a heat map's cell, 0 (light) to 1 (dark); the same in both themes.
ImU32 heat_color(double share);

/// Black or white, whichever reads better on a background.
ImU32 readable_text_on(ImU32 background);

/// Colour of a point's status word (ok, oom, failed, running, ...).
ImU32 status_color(std::string_view status, Theme theme);

/// The same colour with another opacity, 0 to 1.
ImU32 with_alpha(ImU32 color, float alpha);

/// Straight mix of two colours: 0 gives the first, 1 the second.
ImU32 mix(ImU32 first, ImU32 second, float share);

}  // namespace moonshard::viewer
