// The run table panel: every point of the open folders as a row. Failed points stay in it, with
// their reason in a tooltip.
#include <string>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/panel.h"
#include "viewer/panels/run_table_model.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

class RunTablePanel final : public Panel {
 public:
  std::string_view name() const override { return "run_table"; }
  const char* title() const override { return "Runs"; }

  void draw(const PanelContext& context) override {
    rebuild(context.snapshot);
    draw_errors(context);
    if (table_.rows.empty()) {
      draw_empty(context);
      return;
    }
    draw_filter(context);
    draw_table(context);
  }

 private:
  void rebuild(const Snapshot& snapshot) {
    if (snapshot.generation == generation_) return;
    generation_ = snapshot.generation;
    table_ = build_run_table(snapshot);
    stale_ = true;
  }

  void draw_errors(const PanelContext& context) const {
    for (const LoadedRun& loaded : context.snapshot.runs) {
      if (loaded.error.empty()) continue;
      show_wrapped(clean_text(loaded.error), status_color("failed", context.style.theme));
    }
  }

  void draw_empty(const PanelContext& context) const {
    if (context.loading) {
      show_empty_state("Reading the run folders ...", "", context.style);
    } else {
      show_empty_state("No points yet",
                       "Points appear here as soon as the sweep starts them. F5 reads the folder "
                       "again.",
                       context.style);
    }
  }

  void draw_filter(const PanelContext& context) {
    if (ImGui::IsWindowFocused(ImGuiFocusedFlags_RootAndChildWindows) &&
        ImGui::Shortcut(ImGuiMod_Ctrl | ImGuiKey_F)) {
      ImGui::SetKeyboardFocusHere();
    }
    ImGui::SetNextItemWidth(std::min(22 * ImGui::GetFontSize(), ImGui::GetContentRegionAvail().x));
    if (ImGui::InputTextWithHint("##filter", "filter, e.g. ghost 256", filter_, sizeof filter_)) {
      stale_ = true;
    }
    ImGui::SameLine();
    const std::string count =
        rows_.size() == table_.rows.size()
            ? fmt::format("{} points", table_.rows.size())
            : fmt::format("{} of {} points", rows_.size(), table_.rows.size());
    show_text(count, plot_colors(context.style.theme).muted_text);
  }

  void draw_table(const PanelContext& context) {
    constexpr ImGuiTableFlags kFlags =
        ImGuiTableFlags_Sortable | ImGuiTableFlags_SortTristate | ImGuiTableFlags_Resizable |
        ImGuiTableFlags_Reorderable | ImGuiTableFlags_Hideable | ImGuiTableFlags_RowBg |
        ImGuiTableFlags_ScrollX | ImGuiTableFlags_ScrollY | ImGuiTableFlags_BordersOuter |
        ImGuiTableFlags_BordersInnerH | ImGuiTableFlags_SizingFixedFit;
    // The columns are part of the identity: another set of columns is another table to ImGui.
    const std::string id = fmt::format("##table{}", table_.columns.size());
    if (!ImGui::BeginTable(id.c_str(), static_cast<int>(table_.columns.size()), kFlags)) return;
    ImGui::TableSetupScrollFreeze(0, 1);
    for (const TableColumn& column : table_.columns) {
      ImGuiTableColumnFlags flags = ImGuiTableColumnFlags_None;
      if (!column.main) flags |= ImGuiTableColumnFlags_DefaultHide;
      ImGui::TableSetupColumn(literal_label(column.title, column.key).c_str(), flags);
    }
    draw_headers();
    sort_rows();
    ImGuiListClipper clipper;
    clipper.Begin(static_cast<int>(rows_.size()));
    while (clipper.Step()) {
      for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
        draw_row(context, table_.rows[rows_[static_cast<size_t>(i)]]);
      }
    }
    ImGui::EndTable();
    if (rows_.empty()) {
      show_text("No point matches the filter.", plot_colors(context.style.theme).muted_text);
    }
  }

  void draw_headers() const {
    ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
    for (size_t c = 0; c < table_.columns.size(); ++c) {
      if (!ImGui::TableSetColumnIndex(static_cast<int>(c))) continue;
      ImGui::TableHeader(literal_label(table_.columns[c].title, table_.columns[c].key).c_str());
    }
  }

  void sort_rows() {
    ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs();
    if (!stale_ && !(specs && specs->SpecsDirty)) return;
    const bool sorted = specs && specs->SpecsCount > 0;
    const size_t column =
        sorted ? static_cast<size_t>(specs->Specs[0].ColumnIndex) : table_.columns.size();
    const bool descending =
        sorted && specs->Specs[0].SortDirection == ImGuiSortDirection_Descending;
    rows_ = visible_rows(table_, filter_, column, descending);
    if (specs) specs->SpecsDirty = false;
    stale_ = false;
  }

  void draw_row(const PanelContext& context, const TableRow& row) const {
    const records::PointRecord& point = context.snapshot.runs[row.run].run.points[row.point];
    Selection& selection = context.selection;
    const bool picked = selection.run == row.run && selection.point_id == point.id;
    ImGui::TableNextRow();
    ImGui::PushID(static_cast<int>(row.run));
    ImGui::PushID(static_cast<int>(row.point));
    bool first = true;
    for (size_t c = 0; c < row.cells.size(); ++c) {
      if (!ImGui::TableSetColumnIndex(static_cast<int>(c))) continue;
      if (first) {
        constexpr auto kSpan =
            ImGuiSelectableFlags_SpanAllColumns | ImGuiSelectableFlags_AllowOverlap;
        if (ImGui::Selectable("##row", picked, kSpan)) {
          selection.run = row.run;
          selection.point_id = point.id;
        }
        draw_tooltip(context, point);
        ImGui::SameLine(0, 0);
        first = false;
      }
      draw_cell(context, table_.columns[c], row.cells[c]);
    }
    ImGui::PopID();
    ImGui::PopID();
  }

  void draw_cell(const PanelContext& context, const TableColumn& column,
                 const TableCell& cell) const {
    if (column.kind == TableColumn::Kind::Status) {
      show_status(cell.text, context.style);
    } else if (cell.text.empty()) {
      ImGui::PushStyleColor(ImGuiCol_Text, plot_colors(context.style.theme).muted_text);
      column.numeric ? show_right("-") : show_text("-");
      ImGui::PopStyleColor();
    } else if (column.numeric) {
      show_right(cell.text);
    } else {
      show_text(cell.text);
    }
  }

  void draw_tooltip(const PanelContext& context, const records::PointRecord& point) const {
    if (point.error.empty() || !ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) return;
    if (!ImGui::BeginTooltip()) return;
    ImGui::PushTextWrapPos(36 * ImGui::GetFontSize());
    show_status(clean_text(point.status, 64), context.style);
    show_text(clean_lines(point.error, 2048));
    ImGui::PopTextWrapPos();
    ImGui::EndTooltip();
  }

  RunTable table_;
  std::vector<size_t> rows_;  // into table_.rows, filtered and sorted
  uint64_t generation_ = 0;
  bool stale_ = true;  // rows_ must be made again
  char filter_[128] = "";
};

}  // namespace

std::unique_ptr<Panel> make_run_table_panel() {
  return std::make_unique<RunTablePanel>();
}

}  // namespace moonshard::viewer
