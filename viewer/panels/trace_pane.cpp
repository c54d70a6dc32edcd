// The pane beside the lanes: the selected span, statistics of its name, sums of the range and of
// the whole trace.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/trace_parts.h"
#include "viewer/panels/trace_text.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kHistogramBins = 40;
constexpr ImGuiTableFlags kPlainTable =
    ImGuiTableFlags_SizingStretchProp | ImGuiTableFlags_NoSavedSettings | ImGuiTableFlags_PadOuterX;

// Words stretch, figures have the room they need.
void figure_columns(const TraceFrame& frame, std::initializer_list<const char*> titles) {
  bool first = true;
  for (const char* title : titles) {
    const ImGuiTableColumnFlags kind =
        first ? ImGuiTableColumnFlags_WidthStretch : ImGuiTableColumnFlags_WidthFixed;
    ImGui::TableSetupColumn(title, kind, first ? 1.0f : 4.3f * frame.em);
    first = false;
  }
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  for (const char* title : titles) {
    ImGui::TableNextColumn();
    show_header(title, title != *titles.begin());
  }
}

void line(const TraceFrame& frame, const char* what, const std::string& value,
          const char* meaning = nullptr) {
  ImGui::TableNextRow();
  ImGui::TableNextColumn();
  show_text(what, frame.style.colors().muted_text);
  if (meaning) ImGui::SetItemTooltip("%s", meaning);
  ImGui::TableNextColumn();
  show_right(value);
}

void copy_buttons(const TraceFrame& frame, const char* what, const auto& make_text) {
  ImGui::PushID(what);
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(0.5f * frame.em, 0.12f * frame.em));
  const bool plain = ImGui::Button("Copy text");
  ImGui::SameLine();
  const bool markdown = ImGui::Button("Copy Markdown");
  ImGui::PopStyleVar();
  if (plain || markdown) {
    ImGui::SetClipboardText(make_text(plain ? TextStyle::Plain : TextStyle::Markdown).c_str());
    frame.state.copied = what;
  }
  ImGui::PopID();
}

// Bars over a logarithmic time axis; a line marks the selected span.
void draw_histogram(const TraceFrame& frame, uint32_t name, double marked_us) {
  const DurationHistogram histogram = duration_histogram(frame.index, name, kHistogramBins);
  if (histogram.counts.size() < 2) return;
  const PlotColors& colors = frame.style.colors();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const ImVec2 size(ImGui::GetContentRegionAvail().x, 4.2f * frame.em);
  ImGui::InvisibleButton("##histogram", size);
  const bool hovered = ImGui::IsItemHovered();
  ImDrawList* draw = ImGui::GetWindowDrawList();
  draw->AddRectFilled(at, at + size, ImGui::GetColorU32(ImGuiCol_FrameBg));
  const uint32_t most = *std::ranges::max_element(histogram.counts);
  const float step = size.x / static_cast<float>(histogram.counts.size());
  const float floor = at.y + size.y;
  for (size_t bin = 0; bin < histogram.counts.size(); ++bin) {
    const float x = at.x + step * static_cast<float>(bin);
    const uint32_t count = histogram.counts[bin];
    if (count > 0) {
      const float share = static_cast<float>(count) / static_cast<float>(most);
      const float height = std::max(1.5f, share * (size.y - 0.3f * frame.em));
      draw->AddRectFilled(ImVec2(x, floor - height), ImVec2(x + std::max(1.0f, step - 1), floor),
                          name_color(frame, name));
    }
    const float mouse = ImGui::GetIO().MousePos.x;
    if (hovered && mouse >= x && mouse < x + step && ImGui::BeginTooltip()) {
      show_text(fmt::format("{} span{} of {} to {}", count, count == 1 ? "" : "s",
                            format_time(histogram.edges_us[bin]),
                            format_time(histogram.edges_us[bin + 1])));
      ImGui::EndTooltip();
    }
  }
  const double low = std::log(histogram.edges_us.front()),
               high = std::log(histogram.edges_us.back());
  if (marked_us > 0 && high > low) {
    const double share = std::clamp((std::log(marked_us) - low) / (high - low), 0.0, 1.0);
    const float x = at.x + static_cast<float>(share) * size.x;
    draw->AddLine(ImVec2(x, at.y), ImVec2(x, floor), colors.text, 1.5f);
  }
  show_text(format_time(histogram.edges_us.front()), colors.muted_text);
  ImGui::SameLine();
  ImGui::PushStyleColor(ImGuiCol_Text, colors.muted_text);
  show_right(format_time(histogram.edges_us.back()));
  ImGui::PopStyleColor();
}

void draw_span(const TraceFrame& frame) {
  const SpanRef span = *frame.state.selected;
  const TraceRow& row = frame.index.row(frame.trace, span.row);
  const uint32_t lane = frame.index.rows[span.row].lane;
  const TraceRank& rank = frame.index.ranks[frame.index.lane_rank[lane]];
  const std::string category = clean_text(frame.trace.categories[row.category[span.index]], 64);
  show_wrapped(fmt::format("{}{}{}, {}", category, category.empty() ? "" : " on ",
                           rank_title(frame.trace, rank), lane_title(frame.trace, lane)),
               frame.style.colors().muted_text);
  if (!ImGui::BeginTable("##span", 2, kPlainTable)) return;
  const double length = static_cast<double>(row.length_us[span.index]);
  line(frame, "start", format_time(row.start_us[span.index]));
  line(frame, "length", length > 0 ? format_time(length) : "instant");
  if (length > 0) line(frame, "self", format_time(kept_self_time(frame, span)));
  ImGui::EndTable();
}

void draw_statistics(const TraceFrame& frame, uint32_t name) {
  const NameStatistics found = name_statistics(frame.index, name);
  const std::optional<SpanRef>& span = frame.state.selected;
  ImGui::Spacing();
  show_bold(fmt::format("{} span{} with this name", found.count, found.count == 1 ? "" : "s"),
            frame.style);
  if (ImGui::BeginTable("##statistics", 2, kPlainTable)) {
    line(frame, "total", format_time(found.total_us));
    line(frame, "self",
         fmt::format("{}  {}", format_time(found.self_us),
                     format_share(found.self_us, found.total_us)),
         "total without the spans nested directly inside");
    line(frame, "mean", format_time(found.mean_us));
    line(frame, "median", format_time(found.median_us));
    line(frame, "min .. max",
         fmt::format("{} .. {}", format_time(found.min_us), format_time(found.max_us)));
    line(frame, "95 % below", format_time(found.p95_us));
    if (span) {
      const uint32_t lane = frame.index.rows[span->row].lane;
      line(frame, "share of lane",
           format_share(name_time_on_lane(frame.index, name, lane),
                        frame.index.busy[lane].total_us()),
           "time of this name on the span's lane, of the time the lane is busy");
    }
    ImGui::EndTable();
  }
  const double marked =
      span ? static_cast<double>(frame.index.row(frame.trace, span->row).length_us[span->index])
           : 0;
  draw_histogram(frame, name, marked);
  copy_buttons(frame, "statistics", [&](TextStyle style) {
    return statistics_text(frame.trace, frame.index, name, style);
  });
}

void draw_ranks(const TraceFrame& frame, const RangeSums& sums) {
  const auto any = [](const RangeSums::Rank& rank) { return rank.communication_us > 0; };
  if (std::ranges::none_of(sums.ranks(), any)) return;
  if (!ImGui::BeginTable("##ranks", 4, kPlainTable)) return;
  figure_columns(frame, {"rank", "comm.", "exposed", "share"});
  draw_rows_in_sight(sums.ranks().size(), [&](size_t i) {
    const RangeSums::Rank& rank = sums.ranks()[i];
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    show_text(rank_title(frame.trace, frame.index.ranks[i]));
    for (const std::string& figure :
         {format_time(rank.communication_us), format_time(rank.exposed_us),
          format_share(rank.exposed_us, rank.communication_us)}) {
      ImGui::TableNextColumn();
      show_right(figure);
    }
  });
  ImGui::EndTable();
}

void draw_busy(const TraceFrame& frame, const RangeSums& sums) {
  if (sums.lanes().empty() || !ImGui::BeginTable("##busy", 3, kPlainTable)) return;
  const bool several = frame.index.ranks.size() > 1;
  figure_columns(frame, {several ? "rank: lane" : "lane", "busy", "share"});
  draw_rows_in_sight(sums.lanes().size(), [&](size_t i) {
    const RangeSums::Lane& lane = sums.lanes()[i];
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    const float share = static_cast<float>(lane.busy_us / sums.range().length_us());
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float width = ImGui::GetContentRegionAvail().x;
    ImGui::GetWindowDrawList()->AddRectFilled(
        at, ImVec2(at.x + width * std::min(share, 1.0f), at.y + ImGui::GetTextLineHeight()),
        with_alpha(series_color(0, frame.style.theme), 0.25f));
    const TraceRank& rank = frame.index.ranks[frame.index.lane_rank[lane.lane]];
    const std::string name = lane_title(frame.trace, lane.lane);
    const std::string which = frame.index.ranks.size() == 1 ? name
                              : rank.rank >= 0              ? fmt::format("{}: {}", rank.rank, name)
                                               : rank_title(frame.trace, rank) + ": " + name;
    show_text(shorten_middle(which, width));
    ImGui::TableNextColumn();
    show_right(format_time(lane.busy_us));
    ImGui::TableNextColumn();
    show_right(format_share(lane.busy_us, sums.range().length_us()));
  });
  ImGui::EndTable();
}

void draw_sums(const TraceFrame& frame, const char* id, const RangeSums& sums,
               TraceViewCache::NameOrder& order, bool with_self) {
  ImGui::PushID(id);
  draw_ranks(frame, sums);
  draw_name_table(frame, "##names", sums, order, with_self);
  draw_busy(frame, sums);
  copy_buttons(frame, "sums",
               [&](TextStyle style) { return sums_text(frame.trace, frame.index, sums, style); });
  ImGui::PopID();
}

}  // namespace

void draw_pane(const TraceFrame& frame) {
  TraceViewState& state = frame.state;
  const ImU32 muted = frame.style.colors().muted_text;
  if (state.selected_name) {
    ImGui::PushFont(frame.style.bold, 0.0f);
    show_wrapped(clean_text(frame.trace.names[*state.selected_name], 512),
                 frame.style.colors().text);
    ImGui::PopFont();
    if (state.selected) draw_span(frame);
    draw_statistics(frame, *state.selected_name);
    ImGui::Spacing();
  }
  constexpr ImGuiTreeNodeFlags kOpen = ImGuiTreeNodeFlags_DefaultOpen;
  if (state.range && ImGui::CollapsingHeader("Range", kOpen)) {
    show_text(fmt::format("{} from {}", format_time(state.range->length_us()),
                          format_time(state.range->start_us)),
              muted);
    draw_sums(frame, "range", state.cache.range_sums, state.cache.range_order, false);
  }
  draw_path_sums(frame);
  const bool alone = !state.range && !state.selected_name;
  if (ImGui::CollapsingHeader("Whole trace", kOpen)) {
    draw_sums(frame, "whole", state.cache.whole, state.cache.whole_order, true);
    if (frame.trace.num_skipped > 0) {
      show_wrapped(fmt::format("{} events of other kinds are not shown.", frame.trace.num_skipped),
                   muted);
    }
  }
  if (alone) {
    show_wrapped(
        "Click a span for its statistics; drag with Shift or the right button for the sums "
        "of a range.",
        muted);
  }
}

}  // namespace moonshard::viewer
