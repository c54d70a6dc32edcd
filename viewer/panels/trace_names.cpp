// How spans are called and coloured. Phases and collectives have the colours they have in every
// picture; other names get one by a hash of their text, so that it is the same in each trace.
#include <array>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/trace_parts.h"
#include "viewer/panels/trace_text.h"
#include "viewer/tracing/trace_index.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxLabels = 20000;  // texts kept; a trace of a million names must not fill memory

uint32_t hash_of(std::string_view text) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash ^ (hash >> 15);
}

// Without the colour of communication and its neighbours, which must stand out, and without grey.
constexpr std::array<size_t, 9> kOrdinaryColors = {0, 2, 3, 5, 8, 10, 11, 12, 13};

}  // namespace

const TraceViewCache::Label& name_label(const TraceFrame& frame, uint32_t name) {
  auto& labels = frame.state.cache.labels;
  if (const auto known = labels.find(name); known != labels.end()) return known->second;
  if (labels.size() >= kMaxLabels) labels.clear();
  TraceViewCache::Label label;
  label.text = clean_text(frame.trace.names[name], 256);
  label.width = ImGui::CalcTextSize(label.text.data(), label.text.data() + label.text.size()).x;
  // The end of "aten::mm" and of "autograd::engine::evaluate_function: MulBackward0" says most. Not
  // so that of a template's arguments.
  const bool plain = label.text.find('<') == std::string::npos;
  const size_t colon = label.text.rfind(plain ? ":" : ": ");
  if (colon != std::string::npos) {
    const size_t word = label.text.find_first_not_of(": ", colon);
    if (word != std::string::npos) label.tail = word;
  }
  return labels.emplace(name, std::move(label)).first->second;
}

ImU32 name_color(const TraceFrame& frame, uint32_t name) {
  ImU32& color = frame.state.cache.colors[name];
  if (color != 0) return color;
  const Theme theme = frame.style.theme;
  const ImU32 background = plot_colors(theme).background;
  const std::string& text = frame.trace.names[name];
  if (frame.index.communication[name]) {
    color = mix(series_color(*named_series_color("communication"), theme), background, 0.08f);
  } else if (const std::optional<size_t> named = named_series_color(text)) {
    color = mix(series_color(*named, theme), background, 0.15f);
  } else {
    const uint32_t hash = hash_of(text);
    const float fade = 0.25f + 0.25f * static_cast<float>((hash >> 8) % 4) / 3.0f;
    const ImU32 base = series_color(kOrdinaryColors[hash % kOrdinaryColors.size()], theme);
    color = mix(base, background, fade);
  }
  return color;
}

std::string lane_title(const Trace& trace, uint32_t lane) {
  const std::string thread = clean_text(trace.lanes[lane].thread, 128);
  // Kineto's "thread 23482 (pt_gloo_runloop)": the name says more than the number.
  const size_t open = thread.find(" (");
  if (thread.starts_with("thread ") && open != std::string::npos && thread.ends_with(')')) {
    const std::string number = thread.substr(7, open - 7);
    const std::string name = thread.substr(open + 2, thread.size() - open - 3);
    if (!name.empty()) return fmt::format("{} {}", name, number);
  }
  return thread.empty() ? fmt::format("lane {}", lane) : thread;
}

double kept_self_time(const TraceFrame& frame, SpanRef span) {
  TraceViewCache& cache = frame.state.cache;
  if (cache.self_of != span) {
    cache.self_of = span;
    cache.self_us = self_time(frame.trace, frame.index, span);
  }
  return cache.self_us;
}

void span_tooltip(const TraceFrame& frame, const TraceHover& hover) {
  if (!hover.span || !ImGui::BeginTooltip()) return;
  const SpanRef span = *hover.span;
  const TraceRow& row = frame.index.row(frame.trace, span.row);
  const uint32_t lane = frame.index.rows[span.row].lane;
  const ImU32 muted = frame.style.colors().muted_text;
  ImGui::PushTextWrapPos(32 * frame.em);
  ImGui::PushFont(frame.style.bold, 0.0f);
  show_text(clean_text(frame.trace.names[row.name[span.index]], 512));
  ImGui::PopFont();
  ImGui::PopTextWrapPos();
  const auto line = [&](const char* what, const std::string& value) {
    show_text(what, muted);
    ImGui::SameLine(5.5f * frame.em);
    show_text(value);
  };
  const double length = static_cast<double>(row.length_us[span.index]);
  if (length > 0) {
    line("length", format_time(length));
    const double self = kept_self_time(frame, span);
    if (self < length) {
      line("self", fmt::format("{}  ({})", format_time(self), format_share(self, length)));
    }
  }
  line("start", format_time(row.start_us[span.index]));
  const std::string& category = frame.trace.categories[row.category[span.index]];
  if (!category.empty()) line("category", clean_text(category, 64));
  const TraceRank& rank = frame.index.ranks[frame.index.lane_rank[lane]];
  line("lane", fmt::format("{}, {}", rank_title(frame.trace, rank), lane_title(frame.trace, lane)));
  if (hover.count > 1) {
    show_text(fmt::format("one of {} spans in this place; zoom in to part them", hover.count),
              muted);
  }
  ImGui::EndTooltip();
}

}  // namespace moonshard::viewer
