#include "viewer/panels/run_table.h"

#include <cmath>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/commands.h"
#include "viewer/data/noise.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {
namespace {

const char* group_title(TableColumn::Kind kind) {
  if (kind == TableColumn::Kind::Option) return "Options";
  if (kind == TableColumn::Kind::Metric) return "Metrics";
  return kind == TableColumn::Kind::Overhead ? "Against the baseline" : "Points";
}

void draw_baseline_menu(const PanelContext& context, PointRef ref) {
  Workspace& workspace = context.workspace;
  const RunData& run = workspace.run(ref);
  if (ImGui::MenuItem("This point for all")) {
    workspace.set_baseline({Baseline::Kind::Point, run.path, workspace.head(ref).id, "", ""});
  }
  for (const std::string& axis : run.axes) {
    if (!run.options.find(axis)) continue;
    const std::string value = workspace.option_text(ref, axis);
    const std::string label = fmt::format("{} = {}, with the same other options", axis, value);
    if (ImGui::MenuItem(literal_label(label, axis).c_str())) {
      workspace.set_baseline({Baseline::Kind::Axis, "", "", axis, value});
    }
  }
  ImGui::Separator();
  if (ImGui::MenuItem("No baseline")) workspace.set_baseline({});
}

std::string row_text(const Workspace& workspace, PointRef ref) {
  const RunData& run = workspace.run(ref);
  std::string text = fmt::format("{} {}\n", workspace.head(ref).id, workspace.head(ref).status);
  for (const ValueTable* table : {&run.options, &run.metrics}) {
    for (size_t k = 0; k < table->keys.size(); ++k) {
      const std::string value = value_text(run, table->at(ref.point, k));
      if (!value.empty()) text += fmt::format("{} = {}\n", table->keys[k], value);
    }
  }
  return text;
}

// The interval of the time ratio, as soon as the steps of both points are read.
std::string noise_text(const PanelContext& context, PointRef ref) {
  const Overhead& overhead = context.workspace.overhead(ref);
  if (overhead.is_baseline || std::isnan(overhead.time_ratio)) return "";
  const Loaded<PointDetail> own = context.detail(ref), other = context.detail(*overhead.baseline);
  if (!own.value || !other.value) return "";
  const std::optional<Interval> interval =
      ratio_interval(step_samples(*own.value), step_samples(*other.value));
  if (!interval) return "too few steps to say how sure the time ratio is";
  return fmt::format("time x: 95 % of resamples from {:.3f} to {:.3f}{}", interval->low,
                     interval->high, interval->contains(1) ? ", within noise" : "");
}

}  // namespace

void RunTablePanel::draw_column_menu() {
  ImGui::SetNextWindowSizeConstraints(ImVec2(0, 0),
                                      ImVec2(30 * ImGui::GetFontSize(), 32 * ImGui::GetFontSize()));
  if (!ImGui::BeginPopup("##columns")) return;
  static char query[64] = "";
  if (ImGui::IsWindowAppearing()) {
    query[0] = '\0';
    ImGui::SetKeyboardFocusHere();
  }
  ImGui::InputTextWithHint("##search", "search columns", query, sizeof query);
  ImGui::SameLine();
  if (ImGui::Button("Default")) {
    chosen_.clear();
    pinned_.clear();
    stale_ = true;
  }
  if (!group_id_.empty()) {
    ImGui::SameLine();
    if (ImGui::Button("No groups")) set_group("");
  }
  const char* last_group = "";
  for (const TableColumn& column : columns_) {
    if (fuzzy_score(query, column.title) < 0 && fuzzy_score(query, column.key) < 0) continue;
    const char* group = group_title(column.kind);
    if (std::string_view(group) != last_group) ImGui::SeparatorText(group);
    last_group = group;
    bool on = is_shown(column);
    if (ImGui::Checkbox(literal_label(column.title, column.id()).c_str(), &on)) {
      choose(column.id(), on);
    }
  }
  ImGui::EndPopup();
}

void draw_row_menu(const PanelContext& context, PointRef ref) {
  if (!ImGui::BeginPopupContextItem("##rowmenu")) return;
  Workspace& workspace = context.workspace;
  const bool pinned = workspace.pinned(ref);
  if (ImGui::MenuItem(pinned ? "Unpin" : "Pin to the top")) workspace.set_pinned(ref, !pinned);
  if (ImGui::MenuItem("Hide this point")) workspace.set_hidden(ref, true);
  if (ImGui::MenuItem("Show hidden points", nullptr, false, workspace.num_hidden() > 0)) {
    workspace.show_all_hidden();
  }
  ImGui::Separator();
  if (ImGui::BeginMenu("Baseline")) {
    draw_baseline_menu(context, ref);
    ImGui::EndMenu();
  }
  ImGui::Separator();
  for (const auto& [panel, label] : {std::pair{"details", "Show details"},
                                     {"log", "Show the log"},
                                     {"trace", "Show the trace"}}) {
    if (!ImGui::MenuItem(label)) continue;
    workspace.select(ref);
    context.requests.open_panels.push_back(panel);
  }
  ImGui::Separator();
  if (ImGui::MenuItem("Copy options and metrics")) {
    context.requests.copy(row_text(workspace, ref), "options and metrics of the point");
  }
  if (ImGui::MenuItem("Copy id")) context.requests.copy(workspace.head(ref).id, "the point's id");
  ImGui::EndPopup();
}

void draw_row_tooltip(const PanelContext& context, PointRef ref) {
  if (!ImGui::IsItemHovered(ImGuiHoveredFlags_ForTooltip)) return;
  const PointHead& head = context.workspace.head(ref);
  const Overhead& overhead = context.workspace.overhead(ref);
  if (head.error.empty() && !overhead.baseline && !context.workspace.is_modelled(ref)) return;
  if (!ImGui::BeginTooltip()) return;
  ImGui::PushTextWrapPos(36 * ImGui::GetFontSize());
  show_status(clean_text(head.status, 64), context.style);
  if (!head.error.empty()) show_text(clean_lines(head.error, 2048));
  if (overhead.baseline) {
    show_text(overhead.is_baseline
                  ? "is the baseline"
                  : "compared with " + context.workspace.short_name(*overhead.baseline),
              context.style.colors().muted_text);
    show_text(noise_text(context, ref), context.style.colors().muted_text);
  }
  if (context.workspace.is_modelled(ref)) {
    show_text(context.workspace.is_simulated(ref)
                  ? "simulated by a plan: every figure is modelled"
                  : "one rank of a modelled world: times of communication are modelled",
              context.style.colors().muted_text);
  }
  ImGui::PopTextWrapPos();
  ImGui::EndTooltip();
}

}  // namespace moonshard::viewer
