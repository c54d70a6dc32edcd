// Names with their times as a table: sorted by any column, only the hits while a search is on, a
// click shows the statistics of the name.
#include <algorithm>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/trace_parts.h"
#include "viewer/panels/trace_text.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

enum Column { kName, kTotal, kSelf, kCount };
constexpr int kMaxNameRows = 14;  // in sight; the rest scrolls

void sort_names(const TraceFrame& frame, const RangeSums& sums, TraceViewCache::NameOrder& order,
                const ImGuiTableSortSpecs* specs) {
  const std::vector<RangeSums::Name>& names = sums.names();
  order.places.clear();
  for (uint32_t i = 0; i < names.size(); ++i) {
    const TraceSearch& search = frame.state.cache.search;
    if (!search.active() || search.matches_name(names[i].name)) order.places.push_back(i);
  }
  order.num_summed = names.size();
  order.searched = frame.state.cache.searched;
  order.stale = false;
  if (!specs || specs->SpecsCount == 0) return;
  const ImGuiID column = specs->Specs[0].ColumnUserID;
  const bool down = specs->Specs[0].SortDirection == ImGuiSortDirection_Descending;
  const auto self = [&](uint32_t i) { return frame.index.names[names[i].name].self_us; };
  const auto less = [&](uint32_t a, uint32_t b) {
    if (column == kName) return frame.trace.names[names[a].name] < frame.trace.names[names[b].name];
    if (column == kCount) return names[a].count < names[b].count;
    return column == kSelf ? self(a) < self(b) : names[a].total_us < names[b].total_us;
  };
  std::ranges::stable_sort(order.places,
                           [&](uint32_t a, uint32_t b) { return down ? less(b, a) : less(a, b); });
}

}  // namespace

void draw_name_table(const TraceFrame& frame, const char* id, const RangeSums& sums,
                     TraceViewCache::NameOrder& order, bool with_self) {
  if (sums.names().empty()) {
    show_text(sums.done() ? "No span in it." : "summing ...", frame.style.colors().muted_text);
    return;
  }
  constexpr ImGuiTableFlags kFlags = ImGuiTableFlags_Sortable | ImGuiTableFlags_ScrollY |
                                     ImGuiTableFlags_RowBg | ImGuiTableFlags_SizingStretchProp |
                                     ImGuiTableFlags_NoSavedSettings | ImGuiTableFlags_PadOuterX;
  const float row = ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y;
  const float shown =
      static_cast<float>(std::min<size_t>(std::max<size_t>(order.places.size(), 3), kMaxNameRows)) +
      1.5f;
  // Names need room more than a fourth column.
  with_self = with_self && ImGui::GetContentRegionAvail().x > 23 * frame.em;
  if (!ImGui::BeginTable(id, with_self ? 4 : 3, kFlags, ImVec2(0, shown * row))) return;
  ImGui::TableSetupScrollFreeze(0, 1);
  constexpr auto kDown =
      ImGuiTableColumnFlags_PreferSortDescending | ImGuiTableColumnFlags_WidthFixed;
  const float figure = 4.3f * frame.em;
  ImGui::TableSetupColumn("name", ImGuiTableColumnFlags_WidthStretch, 1.0f, kName);
  ImGui::TableSetupColumn("total", kDown | ImGuiTableColumnFlags_DefaultSort, figure, kTotal);
  if (with_self) ImGui::TableSetupColumn("self", kDown, figure, kSelf);
  ImGui::TableSetupColumn("count", kDown, 0.8f * figure, kCount);
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  for (int column = 0; column < ImGui::TableGetColumnCount(); ++column) {
    ImGui::TableSetColumnIndex(column);
    show_header(ImGui::TableGetColumnName(column), column > 0);
  }
  ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs();
  const bool changed = order.stale || order.num_summed != sums.names().size() ||
                       order.searched != frame.state.cache.searched;
  if (changed || (specs && specs->SpecsDirty)) sort_names(frame, sums, order, specs);
  if (specs) specs->SpecsDirty = false;
  draw_rows_in_sight(order.places.size(), [&](size_t i) {
    const RangeSums::Name& name = sums.names()[order.places[i]];
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    ImGui::PushID(static_cast<int>(name.name));
    if (ImGui::Selectable("##row", frame.state.selected_name == name.name,
                          ImGuiSelectableFlags_SpanAllColumns)) {
      frame.state.selected.reset();
      frame.state.selected_name = name.name;
    }
    if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip) && ImGui::BeginTooltip()) {
      ImGui::PushTextWrapPos(32 * frame.em);
      show_text(clean_text(frame.trace.names[name.name], 512));
      ImGui::PopTextWrapPos();
      show_text("mean " + format_time(name.total_us / name.count));
      ImGui::EndTooltip();
    }
    ImGui::PopID();
    ImGui::SameLine(0, 0);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float dot = 0.6f * frame.em, y = at.y + 0.3f * frame.em;
    ImGui::GetWindowDrawList()->AddRectFilled(ImVec2(at.x, y), ImVec2(at.x + dot, y + dot),
                                              name_color(frame, name.name), 2);
    ImGui::SetCursorScreenPos(ImVec2(at.x + 0.9f * frame.em, at.y));
    // The whole name, else what follows its last colon, else its two ends.
    const TraceViewCache::Label& label = name_label(frame, name.name);
    const float room = ImGui::GetContentRegionAvail().x;
    show_text(label.width <= room ? label.text
                                  : shorten_middle(label.text.substr(label.tail), room));
    ImGui::TableNextColumn();
    show_right(format_time(name.total_us));
    if (with_self) {
      ImGui::TableNextColumn();
      show_right(format_time(frame.index.names[name.name].self_us));
    }
    ImGui::TableNextColumn();
    show_right(fmt::format("{}", name.count));
  });
  ImGui::EndTable();
}

}  // namespace moonshard::viewer
