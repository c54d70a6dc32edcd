#include "viewer/panels/memory_snapshot_tables.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/data/table_text.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr float kMaxRowsInSight = 12;

}  // namespace

void SnapshotTables::show(const MemorySnapshot& snapshot) {
  const auto text = [](const std::string& value) { return Cell{clean_text(value, 512), NAN}; };
  const auto bytes = [](double value) { return Cell{format_bytes(value), value}; };
  const auto number = [](double value) { return Cell{fmt::format("{:.0f}", value), value}; };
  const auto address = [](uint64_t value) {
    return Cell{fmt::format("{:#x}", value), static_cast<double>(value)};
  };
  tables_.clear();
  Table blocks{"Largest blocks",
               fmt::format("{} of {}", snapshot.largest.size(), snapshot.num_blocks),
               {{"size", "Bytes of the block."},
                {"requested", "What was asked for, before rounding up."},
                {"state",
                 "active_allocated: a tensor holds it. active_pending_free: freed, but a "
                 "stream still uses it."},
                {"where", "Innermost frames of who asked for it, where the snapshot has them."},
                {"address", "Place in the device's memory."}},
               {}};
  for (const SnapshotBlock& block : snapshot.largest) {
    blocks.rows.push_back({bytes(block.size), bytes(block.requested), text(block.state),
                           text(block.where), address(block.address)});
  }
  Table segments{"Segments",
                 fmt::format("{} of {}", snapshot.segments.size(), snapshot.num_segments),
                 {{"size", "Bytes taken from the device."},
                  {"allocated", "Held by tensors."},
                  {"used", "Share that is held by tensors."},
                  {"largest free", "The largest free block in it."},
                  {"blocks", "Parts, in use or free."},
                  {"kind", "large or small: which pool it belongs to."},
                  {"device", "Which GPU."},
                  {"stream", "Whose work may use it."},
                  {"address", "Place in the device's memory."}},
                 {}};
  for (const SnapshotSegment& segment : snapshot.segments) {
    const double used = segment.total > 0 ? 100 * segment.allocated / segment.total : 0;
    segments.rows.push_back(
        {bytes(segment.total), bytes(segment.allocated), Cell{fmt::format("{:.1f} %", used), used},
         bytes(segment.largest_free), number(segment.num_blocks),
         text(segment.expandable ? segment.kind + ", grows" : segment.kind),
         number(static_cast<double>(segment.device)),
         address(static_cast<uint64_t>(segment.stream)), address(segment.address)});
  }
  Table actions{"What happened",
                "",
                {{"action",
                  "alloc: handed to a tensor. free_requested, free_completed: given back. "
                  "segment_alloc, segment_free: between allocator and device."},
                 {"count", "How often."},
                 {"bytes", "Added up."}},
                {}};
  for (const SnapshotAction& action : snapshot.actions) {
    actions.rows.push_back(
        {text(action.action), number(static_cast<double>(action.count)), bytes(action.bytes)});
  }
  for (Table* table : {&blocks, &segments, &actions}) {
    if (!table->rows.empty()) tables_.push_back(std::move(*table));
  }
}

std::string SnapshotTables::Table::markdown() const {
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> texts;
  for (const auto& column : columns) names.emplace_back(column.first);
  for (const std::vector<Cell>& row : rows) {
    texts.emplace_back();
    for (const Cell& cell : row) texts.back().push_back(cell.text);
  }
  return table_markdown(names, texts);
}

void SnapshotTables::sort_rows(Table& table) {
  ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs();
  if (!specs || !specs->SpecsDirty) return;
  specs->SpecsDirty = false;
  if (specs->SpecsCount == 0) return;
  const auto column = static_cast<size_t>(specs->Specs[0].ColumnIndex);
  const bool down = specs->Specs[0].SortDirection == ImGuiSortDirection_Descending;
  std::ranges::stable_sort(table.rows, [&](const std::vector<Cell>& a, const std::vector<Cell>& b) {
    const Cell &x = down ? b[column] : a[column], &y = down ? a[column] : b[column];
    if (std::isnan(x.number) || std::isnan(y.number)) return x.text < y.text;
    return x.number < y.number;
  });
}

void SnapshotTables::draw_table(Table& table, AppRequests& requests) {
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_ScrollX | ImGuiTableFlags_ScrollY | ImGuiTableFlags_Resizable |
      ImGuiTableFlags_Sortable | ImGuiTableFlags_RowBg | ImGuiTableFlags_BordersInnerH |
      ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_NoSavedSettings | ImGuiTableFlags_PadOuterX;
  const std::string heading =
      table.more.empty() ? table.title : fmt::format("{}: {}", table.title, table.more);
  ImGui::PushID(table.title);
  ImGui::SeparatorText(heading.c_str());
  if (ImGui::IsItemClicked(ImGuiMouseButton_Right)) ImGui::OpenPopup("##copy");
  if (ImGui::BeginPopup("##copy")) {
    if (ImGui::MenuItem("Copy as Markdown")) requests.copy(table.markdown(), heading);
    ImGui::EndPopup();
  }
  const float rows = std::min(static_cast<float>(table.rows.size()) + 1, kMaxRowsInSight);
  const float height = rows * (ImGui::GetTextLineHeight() + 2 * ImGui::GetStyle().CellPadding.y) +
                       ImGui::GetStyle().ScrollbarSize;
  if (ImGui::BeginTable("##table", static_cast<int>(table.columns.size()), kFlags,
                        ImVec2(0, height))) {
    ImGui::TableSetupScrollFreeze(0, 1);
    // Numbers begin with the largest; each table with the first of its numbers.
    bool sorted = false;
    for (size_t c = 0; c < table.columns.size(); ++c) {
      const bool number = !std::isnan(table.rows.front()[c].number);
      ImGuiTableColumnFlags flags = number ? ImGuiTableColumnFlags_PreferSortDescending : 0;
      if (number && !sorted) flags |= ImGuiTableColumnFlags_DefaultSort;
      sorted = sorted || number;
      ImGui::TableSetupColumn(table.columns[c].first, flags);
    }
    sort_rows(table);
    ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
    for (size_t c = 0; c < table.columns.size(); ++c) {
      if (!ImGui::TableSetColumnIndex(static_cast<int>(c))) continue;
      show_header(table.columns[c].first, !std::isnan(table.rows.front()[c].number));
      explain_item(table.columns[c].second);
    }
    draw_rows_in_sight(table.rows.size(), [&](size_t row) {
      ImGui::TableNextRow();
      for (size_t c = 0; c < table.columns.size(); ++c) {
        if (!ImGui::TableSetColumnIndex(static_cast<int>(c))) continue;
        const Cell& cell = table.rows[row][c];
        std::isnan(cell.number) ? show_text(cell.text) : show_right(cell.text);
      }
    });
    ImGui::EndTable();
  }
  ImGui::PopID();
}

}  // namespace moonshard::viewer
