// One function per panel; panels/all_panels.cpp puts them in order.
#pragma once

#include <memory>

#include "viewer/panels/panel.h"

namespace moonshard::viewer {

std::unique_ptr<Panel> make_run_table_panel();
std::unique_ptr<Panel> make_details_panel();
std::unique_ptr<Panel> make_log_panel();
std::unique_ptr<Panel> make_tables_panel();
std::unique_ptr<Panel> make_progress_panel();
std::unique_ptr<Panel> make_plot_spec_panel();
std::unique_ptr<Panel> make_comparison_panel();
std::unique_ptr<Panel> make_tradeoff_panel();
std::unique_ptr<Panel> make_scaling_panel();
std::unique_ptr<Panel> make_heat_map_panel();
std::unique_ptr<Panel> make_memory_panel();
std::unique_ptr<Panel> make_memory_timeline_panel();
std::unique_ptr<Panel> make_memory_snapshot_panel();
std::unique_ptr<Panel> make_phases_panel();
std::unique_ptr<Panel> make_samples_panel();
std::unique_ptr<Panel> make_layers_panel();
std::unique_ptr<Panel> make_communication_panel();
std::unique_ptr<Panel> make_privacy_panel();
std::unique_ptr<Panel> make_trace_panel();

}  // namespace moonshard::viewer
