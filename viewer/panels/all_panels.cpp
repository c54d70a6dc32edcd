#include <imgui.h>

#include "viewer/panels/make_panels.h"

namespace moonshard::viewer {

std::vector<std::unique_ptr<Panel>> make_all_panels() {
  std::vector<std::unique_ptr<Panel>> panels;
  panels.push_back(make_run_table_panel());
  panels.push_back(make_comparison_panel());
  panels.push_back(make_tradeoff_panel());
  panels.push_back(make_scaling_panel());
  panels.push_back(make_heat_map_panel());
  panels.push_back(make_memory_panel());
  panels.push_back(make_memory_timeline_panel());
  panels.push_back(make_memory_snapshot_panel());
  panels.push_back(make_phases_panel());
  panels.push_back(make_samples_panel());
  panels.push_back(make_layers_panel());
  panels.push_back(make_communication_panel());
  panels.push_back(make_trace_panel());
  panels.push_back(make_privacy_panel());
  panels.push_back(make_plot_spec_panel());
  panels.push_back(make_details_panel());
  panels.push_back(make_log_panel());
  panels.push_back(make_tables_panel());
  panels.push_back(make_progress_panel());
  return panels;
}

void AppRequests::copy(const std::string& text, const std::string& what) {
  ImGui::SetClipboardText(text.c_str());
  notice = "copied " + what;
}

}  // namespace moonshard::viewer
