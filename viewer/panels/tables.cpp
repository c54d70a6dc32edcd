// The tables panel: CSV files of the run folder and of the selected point, as they stand.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <imgui.h>

#include "runtime/records/csv.h"
#include "viewer/data/table_text.h"
#include "viewer/panels/panel.h"
#include "viewer/widgets/choice.h"
#include "viewer/widgets/definitions.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

constexpr size_t kMaxShownColumns = 256;
constexpr size_t kMaxCopied = 100'000;  // rows

class TablesPanel final : public Panel {
 public:
  TablesPanel() : Panel({"tables", "Tables", DockPlace::Side}) {}

  void draw(const PanelContext& context) override {
    const std::optional<size_t> run = context.workspace.selected_run();
    const std::vector<std::string> files =
        run ? list_files(context, *run) : std::vector<std::string>();
    if (files.empty()) {
      show_empty_state("No tables here",
                       "Sweeps write index.csv; points write steps.csv, "
                       "memory.csv and others.",
                       context.style);
      return;
    }
    if (std::ranges::find(files, file_) == files.end()) file_ = files.front();
    ImGui::SetNextItemWidth(
        std::min(22 * ImGui::GetFontSize(), ImGui::GetContentRegionAvail().x * 0.6f));
    pick_name("##file", file_, files, shown_name);
    const ReadRequest request{ReadRequest::Kind::Table, context.workspace.run(*run).path, {file_}};
    const Loaded<records::CsvTable> table = context.store.file<records::CsvTable>(request);
    if (!show_loading(table, context.store, request, context.style)) return;
    draw_copy(context, *table.value);
    draw_table(*table.value, context.style);
  }

 private:
  static std::vector<std::string> list_files(const PanelContext& context, size_t run) {
    std::vector<std::string> files = context.workspace.run(run).tables;
    const std::optional<PointRef> ref = context.workspace.selected_point();
    if (!ref) return files;
    const std::string& id = context.workspace.head(*ref).id;
    const Loaded<PointDetail> detail = context.detail(*ref);
    for (size_t i = 0; detail.value && i < detail.value->tables.size(); ++i) {
      files.push_back("points/" + id + "/" + detail.value->tables[i]);
    }
    return files;
  }

  // The id means nothing to a user: "steps.csv of the point".
  static std::string shown_name(const std::string& file) {
    const size_t slash = file.rfind('/');
    return slash == std::string::npos ? file : file.substr(slash + 1) + " of the point";
  }

  static void draw_copy(const PanelContext& context, const records::CsvTable& table) {
    ImGui::SameLine();
    if (ImGui::Button("Copy")) ImGui::OpenPopup("##copy");
    ImGui::SameLine();
    show_text(fmt::format("{} rows", table.rows.size()), context.style.colors().muted_text);
    if (!ImGui::BeginPopup("##copy")) return;
    std::vector<TextRow> rows = table.rows;
    if (rows.size() > kMaxCopied) rows.resize(kMaxCopied);
    const std::string what = fmt::format("{} rows", rows.size());
    if (ImGui::MenuItem("As text")) {
      context.requests.copy(table_text(table.columns, rows), what + " as text");
    }
    if (ImGui::MenuItem("As Markdown")) {
      context.requests.copy(table_markdown(table.columns, rows), what + " as Markdown");
    }
    if (ImGui::MenuItem("As CSV"))
      context.requests.copy(records::to_csv({table.columns, rows}), what);
    ImGui::EndPopup();
  }

  // By its first rows: a column of figures stands at the right.
  static bool holds_numbers(const records::CsvTable& table, size_t column) {
    bool any = false;
    for (size_t r = 0; r < std::min<size_t>(table.rows.size(), 20); ++r) {
      const std::string& text = table.rows[r][column];
      if (text.empty()) continue;
      char* end = nullptr;
      std::strtod(text.c_str(), &end);
      if (end != text.c_str() + text.size()) return false;
      any = true;
    }
    return any;
  }

  // A fraction with more digits than anybody reads is rounded; the file's own is under the mouse.
  static std::string readable_number(const std::string& text) {
    constexpr size_t kMostDigits = 7;
    if (text.size() <= kMostDigits || text.find('.') == std::string::npos) return text;
    return fmt::format("{:.6g}", std::strtod(text.c_str(), nullptr));
  }

  void draw_table(const records::CsvTable& table, const UiStyle& style) const {
    const size_t columns = std::min(table.columns.size(), kMaxShownColumns);
    if (columns == 0) {
      show_empty_state("The file is empty", "", style);
      return;
    }
    constexpr ImGuiTableFlags kFlags =
        ImGuiTableFlags_Resizable | ImGuiTableFlags_RowBg | ImGuiTableFlags_ScrollX |
        ImGuiTableFlags_ScrollY | ImGuiTableFlags_BordersOuter | ImGuiTableFlags_BordersInnerH |
        ImGuiTableFlags_SizingFixedFit | ImGuiTableFlags_NoSavedSettings;
    if (!ImGui::BeginTable(("##" + file_).c_str(), static_cast<int>(columns), kFlags)) return;
    ImGui::TableSetupScrollFreeze(1, 1);
    for (size_t c = 0; c < columns; ++c) {
      ImGui::TableSetupColumn(literal_label(table.columns[c], std::to_string(c)).c_str());
    }
    std::vector<char> numeric(columns);
    for (size_t c = 0; c < columns; ++c) numeric[c] = holds_numbers(table, c);
    ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
    for (size_t c = 0; c < columns; ++c) {
      if (!ImGui::TableSetColumnIndex(static_cast<int>(c))) continue;
      show_header(ImGui::TableGetColumnName(static_cast<int>(c)), numeric[c] != 0);
      explain_item(definition_of(table.columns[c]));
    }
    draw_rows_in_sight(table.rows.size(), [&](size_t row) {
      ImGui::TableNextRow();
      for (size_t c = 0; c < columns; ++c) {
        if (!ImGui::TableSetColumnIndex(static_cast<int>(c))) continue;
        const std::string text = clean_text(table.rows[row][c], 256);
        const std::string shown = numeric[c] ? readable_number(text) : text;
        numeric[c] ? show_right(shown) : show_text(shown);
        if (shown != text) ImGui::SetItemTooltip("%s", text.c_str());
      }
    });
    ImGui::EndTable();
  }

  std::string file_;
};

}  // namespace

const MakePanel make_tables_panel = make_panel<TablesPanel>;

}  // namespace moonshard::viewer
