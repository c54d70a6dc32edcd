#include "viewer/panels/panel.h"

#include <algorithm>

#include <fmt/format.h>
#include <imgui.h>

#include "viewer/panels/chart_panel.h"
#include "viewer/script.h"
#include "viewer/widgets/format.h"
#include "viewer/widgets/text.h"

namespace moonshard::viewer {

std::vector<std::unique_ptr<Panel>> make_all_panels() {
  std::vector<std::unique_ptr<Panel>> panels;
  for (const auto make :
       {make_run_table_panel,     make_comparison_panel,      make_training_panel,
        make_tradeoff_panel,      make_scaling_panel,         make_heat_map_panel,
        make_memory_panel,        make_memory_timeline_panel, make_memory_snapshot_panel,
        make_phases_panel,        make_samples_panel,         make_layers_panel,
        make_communication_panel, make_trace_panel,           make_privacy_panel,
        make_plan_panel,          make_plot_spec_panel,       make_details_panel,
        make_log_panel,           make_tables_panel,          make_progress_panel}) {
    panels.push_back(make());
  }
  return panels;
}

std::string Panel::script(const Workspace& workspace) const {
  return info_.figure ? figure_script(workspace, info_.figure) : "";
}

void AppRequests::copy(const std::string& text, const std::string& what) {
  ImGui::SetClipboardText(text.c_str());
  notice = "copied " + what;
}

std::optional<SelectedFiles> selected_files(const PanelContext& context,
                                            std::vector<std::string> PointDetail::*files,
                                            const char* what, const char* next) {
  Chart none;
  if (const std::optional<PointRef> ref = context.workspace.selected_point()) {
    const Loaded<PointDetail> loaded = context.detail(*ref);
    if (loaded.value && !(*loaded.value.*files).empty()) {
      return SelectedFiles{context.workspace.run(*ref).path, context.workspace.head(*ref).id,
                           *loaded.value.*files};
    }
    const bool reading = loaded.loading && !loaded.value;
    const bool failed = !loaded.value && !loaded.error.empty();
    none.empty_what = reading ? "Reading ..." : failed ? "This point cannot be read" : what;
    none.empty_next = reading ? "" : failed ? clean_text(loaded.error) : next;
  } else {
    selected_detail(context, none);
  }
  show_empty_state(none.empty_what, none.empty_next, context.style);
  return std::nullopt;
}

bool show_loading(const Loaded<void>& loaded, Store& store, const ReadRequest& request,
                  const UiStyle& style) {
  const std::string& error = loaded.error;
  if (loaded.value) {
    if (!error.empty()) {
      show_wrapped(clean_text("out of date: " + error), status_color("failed", style.theme));
    }
    return true;
  }
  const float em = ImGui::GetFontSize();
  if (loaded.loading) {
    const ImVec2 room = ImGui::GetContentRegionAvail();
    const float width = std::min(24 * em, room.x * 0.8f);
    ImGui::SetCursorPos(ImGui::GetCursorPos() +
                        ImVec2((room.x - width) / 2, std::max(0.0f, room.y * 0.4f)));
    ImGui::BeginGroup();
    const float share = static_cast<float>(std::clamp(loaded.progress, 0.0, 1.0));
    ImGui::ProgressBar(share, ImVec2(width, 0),
                       fmt::format("reading {:.0f} %", share * 100).c_str());
    if (ImGui::Button("Cancel")) store.cancel(request);
    ImGui::EndGroup();
    return false;
  }
  show_wrapped(clean_text(error.empty() ? "was not read" : error),
               status_color(error == "cancelled" ? "skipped" : "failed", style.theme));
  if (ImGui::Button(error == "cancelled" ? "Read it" : "Try again")) store.retry(request);
  return false;
}

}  // namespace moonshard::viewer
