// The run table panel: every point of the open folders as a row. Failed points stay in it, with
// their reason in a tooltip. What the filter leaves here is what the charts show.
#include "viewer/panels/run_table.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <imgui.h>

#include "runtime/records/csv.h"
#include "viewer/data/table_text.h"
#include "viewer/script.h"
#include "viewer/widgets/definitions.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {

void RunTablePanel::draw(const PanelContext& context) {
  draw_errors(context);
  if (context.snapshot.runs.empty()) {
    show_empty_state("No folder is open",
                     "Drop a run folder here, press Ctrl+O, or start with 'moonshard view DIR'.",
                     context.style);
    return;
  }
  rebuild(context.workspace);
  draw_filter(context);
  if (lines_.empty()) {
    draw_empty(context);
  } else {
    draw_table(context);
  }
}

void RunTablePanel::rebuild(const Workspace& workspace) {
  if (workspace.shown_revision() == revision_ && !stale_) return;
  const uint64_t generation = workspace.snapshot().generation;
  if (generation != generation_ || workspace.baseline() != baseline_) {
    columns_ = all_columns(workspace);
    generation_ = generation;
    baseline_ = workspace.baseline();
  }
  if (workspace.shown_revision() != revision_) describe_columns(workspace, columns_);
  revision_ = workspace.shown_revision();
  stale_ = false;
  if (!group_chosen_) group_id_ = find_column("run:run") ? "run:run" : "";
  shown_.clear();
  for (const TableColumn& column : columns_) {
    bool on = is_shown(column);
    if (only_differing_) {
      const bool always = column.kind == TableColumn::Kind::Status ||
                          column.kind == TableColumn::Kind::Run ||
                          (column.kind == TableColumn::Kind::Name && on);
      on = always || (column.differs && (on || column.kind == TableColumn::Kind::Option));
    }
    if (on) shown_.push_back(&column);
  }
  const auto rest = std::ranges::stable_partition(
      shown_, [&](const TableColumn* column) { return is_pinned(*column); });
  num_pinned_ = shown_.size() - rest.size();
  TableOrder order;
  order.sort = find_column(sort_id_);
  order.descending = descending_;
  order.group = find_column(group_id_);
  order.closed = closed_;
  lines_ = table_lines(workspace, order);
}

const TableColumn* RunTablePanel::find_column(const std::string& id) const {
  const auto found = std::ranges::find(columns_, id, &TableColumn::id);
  return found == columns_.end() ? nullptr : &*found;
}

void RunTablePanel::draw_errors(const PanelContext& context) const {
  for (const LoadedRun& loaded : context.snapshot.runs) {
    if (!loaded.error.empty()) {
      show_wrapped(clean_text(loaded.error), status_color("failed", context.style.theme));
    }
  }
}

void RunTablePanel::draw_empty(const PanelContext& context) const {
  const bool any = std::ranges::any_of(
      context.snapshot.runs, [](const LoadedRun& run) { return !run.data->points.empty(); });
  if (context.loading) {
    show_empty_state("Reading the run folders ...", "", context.style);
  } else if (any) {
    show_empty_state("No point is left",
                     "Clear the filter (Ctrl+F, Escape), or show hidden points.", context.style);
  } else {
    show_empty_state("No points yet",
                     "Points appear here as soon as the sweep starts them. F5 reads the folder "
                     "again.",
                     context.style);
  }
}

void RunTablePanel::draw_filter(const PanelContext& context) {
  Workspace& workspace = context.workspace;
  if (ImGui::Shortcut(ImGuiMod_Ctrl | ImGuiKey_F, ImGuiInputFlags_RouteGlobal)) {
    ImGui::SetKeyboardFocusHere();
  }
  if (workspace.filter_text() != filter_) {  // set from elsewhere
    std::snprintf(filter_, sizeof filter_, "%s", workspace.filter_text().c_str());
  }
  const bool wrong = !workspace.filter_error().empty();
  if (wrong) ImGui::PushStyleColor(ImGuiCol_Text, status_color("failed", context.style.theme));
  ImGui::SetNextItemWidth(std::clamp(ImGui::GetContentRegionAvail().x - 26 * ImGui::GetFontSize(),
                                     10 * ImGui::GetFontSize(), 30 * ImGui::GetFontSize()));
  if (ImGui::InputTextWithHint("##filter", "filter, e.g. ghost and seq_length >= 1024", filter_,
                               sizeof filter_, ImGuiInputTextFlags_EscapeClearsAll)) {
    workspace.set_filter(filter_);
  }
  if (wrong) ImGui::PopStyleColor();
  // While it is typed the message hangs below the field, so that the table does not jump.
  const bool typing = ImGui::IsItemActive();
  if (wrong && typing) {
    ImGui::SetNextWindowPos(ImVec2(ImGui::GetItemRectMin().x, ImGui::GetItemRectMax().y + 2));
  }
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip) || (wrong && typing)) {
    show_tooltip(wrong ? clean_text(workspace.filter_error())
                       : "Words match any cell. Or compare: mode = ghost*, seq_length >= 1024, "
                         "peak_memory_bytes < 10GiB, status != ok, has(epsilon); join with and, "
                         "or, not and brackets.");
  }
  ImGui::SameLine();
  if (ImGui::Button("Columns")) ImGui::OpenPopup("##columns");
  draw_column_menu();
  ImGui::SameLine();
  if (ImGui::Checkbox("differing", &only_differing_)) stale_ = true;
  explain_item("Only columns in which the shown points differ.");
  ImGui::SameLine();
  if (ImGui::Button("Copy")) ImGui::OpenPopup("##copy");
  draw_copy_menu(context);
  ImGui::SameLine();
  size_t all = 0;
  for (const LoadedRun& run : context.snapshot.runs) all += run.data->points.size();
  std::string count = workspace.shown().size() == all
                          ? fmt::format("{} points", all)
                          : fmt::format("{} of {} points", workspace.shown().size(), all);
  show_text(count, context.style.colors().muted_text);
  if (wrong && !typing) {
    show_wrapped(clean_text(workspace.filter_error()), status_color("failed", context.style.theme));
  }
}

void RunTablePanel::draw_copy_menu(const PanelContext& context) {
  if (!ImGui::BeginPopup("##copy")) return;
  TextRow titles;
  std::vector<TextRow> rows;
  const bool text = ImGui::MenuItem("Table as text");
  const bool markdown = ImGui::MenuItem("Table as Markdown");
  const bool csv = ImGui::MenuItem("Table as CSV");
  if (ImGui::MenuItem("As script")) {
    context.requests.copy(script(context.workspace), "a Lua script that prints this table");
  }
  ImGui::EndPopup();
  if (!text && !markdown && !csv) return;
  for (const TableColumn* column : shown_) titles.push_back(column->title);
  for (const TableLine& line : lines_) {
    if (line.is_group) continue;
    TextRow row;
    for (const TableColumn* column : shown_) {
      row.push_back(cell_text(context.workspace, *column, line.ref));
    }
    rows.push_back(std::move(row));
  }
  const std::string what = fmt::format("{} rows", rows.size());
  if (csv) context.requests.copy(records::to_csv({titles, rows}), what + " as CSV");
  if (text) context.requests.copy(table_text(titles, rows), what + " as text");
  if (markdown) context.requests.copy(table_markdown(titles, rows), what + " as Markdown");
}

std::string RunTablePanel::script(const Workspace& workspace) const {
  std::vector<std::string> cells, titles;
  for (const TableColumn* column : shown_) {
    using Kind = TableColumn::Kind;
    if (column->kind == Kind::Overhead) continue;  // printed by runs:overhead below
    titles.push_back(lua_text(column->key));
    cells.push_back(column->kind == Kind::Run      ? "runs.name"
                    : column->kind == Kind::Option ? fmt::format("point.options[{}]", titles.back())
                    : column->kind == Kind::Name   ? "point.id"
                    : column->kind == Kind::Metric ? fmt::format("point.metrics[{}]", titles.back())
                                                   : "point." + column->key);
  }
  std::string body =
      fmt::format("print(table.concat({{ {} }}, \"\\t\"))\n", fmt::join(titles, ", "));
  body += "for _, point in ipairs(runs.points) do\n  local row = {\n";
  for (const std::string& cell : cells) body += fmt::format("    tostring({}),\n", cell);
  body += "  }\n  print(table.concat(row, \"\\t\"))\nend\n";
  const Baseline& baseline = workspace.baseline();
  std::string before;  // the costs, while the baseline's own points are there
  if (baseline.kind == Baseline::Kind::Axis || baseline.kind == Baseline::Kind::Sweeps) {
    const std::string value = lua_text(baseline.value);
    const std::string options = baseline.kind == Baseline::Kind::Sweeps
                                    ? "{}"
                                    : fmt::format("{{ axis = {}, baseline = tonumber({}) or {} }}",
                                                  lua_text(baseline.axis), value, value);
    before = fmt::format(
        "local good, costs = pcall(runs.overhead, runs, {})\n"
        "local cost_of = {{}}\n"
        "for i, point in ipairs(runs.points) do cost_of[point] = good and costs.rows[i] end\n",
        options);
    body +=
        "if good then\n  costs.rows = {}\n"
        "  for i, point in ipairs(runs.points) do costs.rows[i] = cost_of[point] end\nend\n"
        "print(costs)\n";
  }
  return script_for(workspace, body, before);
}

void RunTablePanel::draw_table(const PanelContext& context) {
  constexpr ImGuiTableFlags kFlags =
      ImGuiTableFlags_Sortable | ImGuiTableFlags_SortTristate | ImGuiTableFlags_Resizable |
      ImGuiTableFlags_Reorderable | ImGuiTableFlags_RowBg | ImGuiTableFlags_ScrollX |
      ImGuiTableFlags_ScrollY | ImGuiTableFlags_BordersOuter | ImGuiTableFlags_BordersInnerH |
      ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_NoSavedSettings;
  if (shown_.empty()) {
    show_empty_state("No column is chosen", "Choose some under Columns.", context.style);
    return;
  }
  // The columns are part of the identity: another set of columns is another table to ImGui.
  std::string id = "##table";
  for (const TableColumn* column : shown_) id += column->id();
  if (!ImGui::BeginTable(id.c_str(), static_cast<int>(shown_.size()), kFlags)) return;
  // A narrow panel has no room for columns that never move.
  const bool wide = ImGui::GetContentRegionAvail().x > 28 * ImGui::GetFontSize();
  ImGui::TableSetupScrollFreeze(wide ? static_cast<int>(num_pinned_) : 0, 1);
  for (const TableColumn* column : shown_) {
    // Names may be long; time and memory beside them must stay in sight.
    const bool name = column->kind == TableColumn::Kind::Name;
    ImGui::TableSetupColumn(literal_label(column->title, column->id()).c_str(),
                            name ? ImGuiTableColumnFlags_WidthFixed : 0,
                            name ? name_width(context.workspace) : 0);
  }
  draw_headers();
  take_sort();
  draw_rows_in_sight(lines_.size(), [&](size_t i) {
    lines_[i].is_group ? draw_group(context, lines_[i]) : draw_row(context, lines_[i].ref);
  });
  ImGui::EndTable();
}

float RunTablePanel::name_width(const Workspace& workspace) const {
  const float em = ImGui::GetFontSize();
  float widest = 6 * em;
  size_t looked = 0;
  for (const TableLine& line : lines_) {
    if (line.is_group || ++looked > 200) continue;
    widest = std::max(widest, ImGui::CalcTextSize(workspace.words(line.ref).c_str()).x);
  }
  return std::min(widest, std::max(17 * em, 0.38f * ImGui::GetContentRegionAvail().x));
}

void RunTablePanel::draw_headers() {
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  for (size_t c = 0; c < shown_.size(); ++c) {
    if (!ImGui::TableSetColumnIndex(static_cast<int>(c))) continue;
    const TableColumn& column = *shown_[c];
    ImGui::TableHeader(literal_label(column.title, column.id()).c_str());
    if (ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) {
      const std::string_view meaning = definition_of(column.key);
      show_tooltip(meaning.empty() ? clean_text(column.id(), 256)
                                   : fmt::format("{}: {}", clean_text(column.key, 128), meaning));
    }
    if (ImGui::BeginPopupContextItem()) {
      const bool pinned = is_pinned(column);
      if (ImGui::MenuItem(pinned ? "Unpin this column" : "Pin this column")) {
        pin(column.id(), !pinned);
      }
      if (ImGui::MenuItem("Group by this")) set_group(column.id());
      if (ImGui::MenuItem("No groups", nullptr, false, !group_id_.empty())) set_group("");
      if (ImGui::MenuItem("Hide this column")) choose(column.id(), false);
      ImGui::EndPopup();
    }
  }
}

void RunTablePanel::take_sort() {
  ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs();
  if (!specs || !specs->SpecsDirty) return;
  specs->SpecsDirty = false;
  const std::string before = sort_id_;
  const bool before_way = descending_;
  sort_id_.clear();
  if (specs->SpecsCount > 0) {
    const auto column = static_cast<size_t>(specs->Specs[0].ColumnIndex);
    if (column < shown_.size()) sort_id_ = shown_[column]->id();
    descending_ = specs->Specs[0].SortDirection == ImGuiSortDirection_Descending;
  }
  if (sort_id_ != before || descending_ != before_way) stale_ = true;
}

void RunTablePanel::draw_group(const PanelContext& context, const TableLine& line) {
  ImGui::TableNextRow();
  ImGui::TableSetColumnIndex(0);
  ImGui::TableSetBgColor(ImGuiTableBgTarget_RowBg0, ImGui::GetColorU32(ImGuiCol_TableHeaderBg));
  const bool closed = closed_.contains(line.group);
  const TableColumn* column = find_column(group_id_);
  const std::string text = fmt::format(
      "{} {} = {}   {} point{}", closed ? "+" : "-", column ? column->title : "",
      line.group.empty() ? "-" : line.group, line.num_points, line.num_points == 1 ? "" : "s");
  ImGui::PushFont(context.style.bold, 0.0f);
  if (ImGui::Selectable(literal_label(text, "group" + line.group).c_str(), false,
                        ImGuiSelectableFlags_SpanAllColumns)) {
    closed ? (void)closed_.erase(line.group) : (void)closed_.insert(line.group);
    stale_ = true;
  }
  ImGui::PopFont();
}

void RunTablePanel::draw_row(const PanelContext& context, PointRef ref) {
  Workspace& workspace = context.workspace;
  const bool picked = workspace.selected_point() == ref;
  ImGui::TableNextRow();
  ImGui::PushID(static_cast<int>(ref.run));
  ImGui::PushID(workspace.head(ref).id.c_str());
  if (workspace.pinned(ref)) {
    ImGui::TableSetBgColor(ImGuiTableBgTarget_RowBg1,
                           with_alpha(series_color(0, context.style.theme), 0.14f));
  }
  bool first = true;
  for (size_t c = 0; c < shown_.size(); ++c) {
    if (!ImGui::TableSetColumnIndex(static_cast<int>(c))) continue;
    if (first) {
      constexpr auto kSpan =
          ImGuiSelectableFlags_SpanAllColumns | ImGuiSelectableFlags_AllowOverlap;
      if (ImGui::Selectable("##row", picked, kSpan)) workspace.select(ref);
      if (picked && scroll_to_selected_ != workspace.selected().id) ImGui::SetScrollHereY();
      if (picked) scroll_to_selected_ = workspace.selected().id;
      draw_row_menu(context, ref);
      draw_row_tooltip(context, ref);
      ImGui::SameLine(0, 0);
      first = false;
    }
    draw_cell(context, *shown_[c], ref);
  }
  ImGui::PopID();
  ImGui::PopID();
}

void RunTablePanel::draw_cell(const PanelContext& context, const TableColumn& column,
                              PointRef ref) const {
  constexpr size_t kMaxCell = 80;  // a long value would push all others off the screen
  std::string text = clean_text(cell_text(context.workspace, column, ref), 512);
  // Names that begin alike differ at their ends.
  if (text.size() > kMaxCell) {
    text =
        clean_text(text.substr(0, kMaxCell / 2) + "..." + text.substr(text.size() - kMaxCell / 2));
  }
  if (column.kind == TableColumn::Kind::Status) return show_status(text, context.style);
  if (text.empty()) ImGui::PushStyleColor(ImGuiCol_Text, context.style.colors().muted_text);
  if (column.kind == TableColumn::Kind::Name) {
    text = shorten_middle(text, ImGui::GetContentRegionAvail().x);
  }
  const std::string_view shown = text.empty() ? "-" : std::string_view(text);
  column.numeric ? show_right(shown) : show_text(shown);
  if (text.empty()) ImGui::PopStyleColor();
}

std::vector<std::pair<std::string, std::string>> RunTablePanel::shortcuts() const {
  return {{"Ctrl+F", "filter the run table"},
          {"click a header", "sort; again to turn round, again for the sweep's order"},
          {"right click a header", "pin the column, group by it, or hide it"},
          {"right click a row", "pin, hide, take as baseline, copy"}};
}

const MakePanel make_run_table_panel = make_panel<RunTablePanel>;

}  // namespace moonshard::viewer
